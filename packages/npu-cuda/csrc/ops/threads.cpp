#include "ops/threads.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

namespace npu {
namespace {

constexpr int kMostThreads = 4096;

int default_count() {
  const char* text = std::getenv("OMP_NUM_THREADS");
  const int wanted = text ? std::atoi(text) : 0;
  return std::clamp(wanted > 0 ? wanted : static_cast<int>(std::thread::hardware_concurrency()), 1, kMostThreads);
}

std::atomic<int>& count_setting() {
  static std::atomic<int> count{default_count()};
  return count;
}

// Waits in a loop, since to sleep and to wake takes longer than most waits; false where it takes too long. To wake takes 50 us:
// so programs of many short ops have their threads awake from one to the next. After a while, other threads go first, such as
// those of PyTorch's own ops.
template <class F>
bool spin_until(F is_true) {
  constexpr auto kAlone = std::chrono::microseconds(20), kLongest = std::chrono::microseconds(200);
  for (const auto start = std::chrono::steady_clock::now(); !is_true();) {
    const auto spent = std::chrono::steady_clock::now() - start;
    if (spent > kLongest) return false;
    if (spent > kAlone) {
      std::this_thread::yield();
      continue;
    }
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
  }
  return true;
}

class Pool {
 public:
  std::mutex in_use;  // by one caller at a time

  // Whether there are threads for so many parts: the system may refuse more.
  bool has_threads_for(int parts) {
    try {
      while (threads_ < parts - 1) start_thread();
    } catch (const std::system_error&) {
      return false;
    }
    return true;
  }

  // Calls function(context, part) for each part from 0. What a part throws is thrown here, when all have ended.
  void run(PartFunction function, void* context, int parts) {
    function_ = function;
    context_ = context;
    pending_ = parts;
    const uint64_t turn = turn_ / kMostParts + 1;
    next_ = turn * kMostParts;
    turn_ = turn * kMostParts + static_cast<uint64_t>(parts);  // publishes what is above
    if (sleepers_ > 0) {
      const std::lock_guard lock(mutex_);
      started_.notify_all();
    }
    run_parts_of(turn_);
    wait_for_parts();
    if (thrown_) std::rethrow_exception(std::exchange(thrown_, nullptr));
  }

 private:
  static constexpr uint64_t kMostParts = 1 << 16;

  void start_thread() {
    std::thread([this, part = threads_ + 1, seen = turn_.load()]() mutable {
      for (;;) {
        wait_for_turn_after(seen);
        seen = turn_;
        if (static_cast<uint64_t>(part) >= seen % kMostParts) continue;
        if (!run_parts_of(seen) || !caller_sleeps_) continue;
        const std::lock_guard lock(mutex_);
        done_.notify_one();
      }
    }).detach();
    ++threads_;
  }

  // Runs parts of a turn that no thread has begun; true if the last one that ended was among them. So nobody waits for a
  // thread that has yet to wake. While a part is not ended its turn is not over: what it reads stays.
  bool run_parts_of(uint64_t turn) {
    bool is_last = false;
    uint64_t next = next_;
    while (next / kMostParts == turn / kMostParts && next % kMostParts < turn % kMostParts) {
      if (!next_.compare_exchange_weak(next, next + 1)) continue;
      run_part(static_cast<int>(next % kMostParts));
      is_last = --pending_ == 0;
      next = next_;
    }
    return is_last;
  }

  void run_part(int part) noexcept {
    try {
      function_(context_, part);
    } catch (...) {
      const std::lock_guard lock(mutex_);
      thrown_ = std::current_exception();
    }
  }

  void wait_for_parts() {
    const auto is_done = [this] { return pending_ == 0; };
    if (spin_until(is_done)) return;
    std::unique_lock lock(mutex_);
    caller_sleeps_ = true;
    done_.wait(lock, is_done);
    caller_sleeps_ = false;
  }

  // Who sleeps says so before it looks for the last time, who wakes looks for sleepers last: neither misses the other.
  void wait_for_turn_after(uint64_t seen) {
    const auto has_begun = [&] { return turn_ != seen; };
    if (spin_until(has_begun)) return;
    std::unique_lock lock(mutex_);
    ++sleepers_;
    started_.wait(lock, has_begun);
    --sleepers_;
  }

  std::mutex mutex_;
  std::condition_variable started_, done_;
  int threads_ = 0;
  // What threads wait for, in a line of the cache that nobody writes to until it changes.
  alignas(64) std::atomic<uint64_t> turn_{0};  // its number, and how many parts it has
  std::atomic<int> sleepers_{0};
  // What all of them write to while it runs.
  alignas(64) std::atomic<uint64_t> next_{0};  // the number of the turn, and the first part that no thread has begun
  std::atomic<int> pending_{0};
  std::atomic<bool> caller_sleeps_{false};
  PartFunction function_ = nullptr;
  void* context_ = nullptr;
  std::exception_ptr thrown_;  // by a part
};

std::atomic<Pool*> current_pool{nullptr};

// Threads do not outlive a fork: the child gets a pool of its own. None is ever destroyed once it has threads, since these
// wait on it. Null where the system cannot tell of a fork. A call of getpid() each time would take longer than short ranges.
Pool* pool() {
  static const bool tells_of_forks = pthread_atfork(nullptr, nullptr, [] { current_pool = nullptr; }) == 0;
  if (!tells_of_forks) return nullptr;
  Pool* known = current_pool;
  if (known) return known;
  Pool* const made = new Pool;
  if (current_pool.compare_exchange_strong(known, made)) return made;
  delete made;  // another thread was first
  return known;
}

}  // namespace

int thread_count() { return count_setting().load(std::memory_order_relaxed); }
void set_thread_count(int count) {
  count_setting().store(std::clamp(count, 1, kMostThreads), std::memory_order_relaxed);
}

bool run_parts(int parts, PartFunction function, void* context) {
  Pool* const threads = pool();
  if (!threads) return false;
  const std::unique_lock lock(threads->in_use, std::try_to_lock);
  if (!lock || !threads->has_threads_for(parts)) return false;
  threads->run(function, context, parts);
  return true;
}

void parallel_for(int64_t total, int64_t least, int64_t grain, RangeFunction function, void* context) {
  const int64_t parts = std::min<int64_t>(thread_count(), total / least);
  const int64_t share = parts > 1 ? ((total + parts - 1) / parts + grain - 1) / grain * grain : total;
  const auto run_part = [&](int64_t part) { function(context, part * share, std::min(total, (part + 1) * share)); };
  if (share < total && run_parts(static_cast<int>((total + share - 1) / share), run_part)) return;
  function(context, 0, total);
}

}  // namespace npu
