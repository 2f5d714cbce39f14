#include "ops/threads.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <mutex>
#include <thread>

namespace npu {
namespace {

int default_count() {
  const char* text = std::getenv("OMP_NUM_THREADS");
  const int wanted = text ? std::atoi(text) : 0;
  return wanted > 0 ? wanted : std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

std::atomic<int>& count_setting() {
  static std::atomic<int> count{default_count()};
  return count;
}

struct Work {
  RangeFunction function;
  void* context;
  int64_t total, share;  // items of a part

  void run(int64_t part) const { function(context, part * share, std::min(total, (part + 1) * share)); }
};

class Pool {
 public:
  std::mutex in_use;  // by one caller at a time

  void run(const Work& work, int parts) {
    while (threads_ < parts - 1) start_thread();
    {
      const std::lock_guard lock(mutex_);
      work_ = work;
      parts_ = pending_ = parts - 1;
      ++generation_;
    }
    started_.notify_all();
    work.run(0);
    std::unique_lock lock(mutex_);
    done_.wait(lock, [this] { return pending_ == 0; });
  }

 private:
  void start_thread() {
    std::thread([this, index = threads_, seen = generation_]() mutable {
      for (;;) {
        std::unique_lock lock(mutex_);
        started_.wait(lock, [&] { return generation_ != seen; });
        seen = generation_;
        if (index >= parts_) continue;
        const Work work = work_;
        lock.unlock();
        work.run(index + 1);
        lock.lock();
        if (--pending_ == 0) done_.notify_one();
      }
    }).detach();
    ++threads_;
  }

  std::mutex mutex_;
  std::condition_variable started_, done_;
  Work work_{};
  int64_t generation_ = 0;
  int threads_ = 0, parts_ = 0, pending_ = 0;
};

// Threads do not outlive a fork: the child gets a pool of its own. None is ever destroyed, since its threads wait on it.
Pool& pool() {
  static std::mutex making;
  static Pool* made = nullptr;
  static pid_t owner = 0;
  const std::lock_guard lock(making);
  if (owner != getpid()) {
    made = new Pool;
    owner = getpid();
  }
  return *made;
}

}  // namespace

int thread_count() { return count_setting().load(std::memory_order_relaxed); }
void set_thread_count(int count) { count_setting().store(std::max(1, count), std::memory_order_relaxed); }

void parallel_for(int64_t total, int64_t least, RangeFunction function, void* context) {
  constexpr int64_t kGrain = 1024;  // a multiple of every block and cache line
  const int64_t parts = std::min<int64_t>(thread_count(), total / least);
  if (parts <= 1) return function(context, 0, total);
  Pool& threads = pool();
  const std::unique_lock lock(threads.in_use, std::try_to_lock);
  if (!lock) return function(context, 0, total);
  const int64_t share = ((total + parts - 1) / parts + kGrain - 1) / kGrain * kGrain;
  threads.run({function, context, total, share}, static_cast<int>((total + share - 1) / share));
}

}  // namespace npu
