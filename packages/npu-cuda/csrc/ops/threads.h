// Threads of host kernels. There is one pool for the process, of at most thread_count() threads, the caller
// being one of them. A caller that finds it in use works alone: callers never wait for one another.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace npu {

// OMP_NUM_THREADS, or the number of processors, until set_thread_count() is called: the backends pass
// PyTorch's number.
int thread_count();
void set_thread_count(int count);

using RangeFunction = void (*)(void* context, int64_t begin, int64_t end);
void parallel_for(int64_t total, int64_t least, int64_t grain, RangeFunction function, void* context);

// Calls f(begin, end) for ranges that cover 0 to total, each of at least `least` items where there is more than one, and each
// but the last of a multiple of `grain`.
template <class F>
void parallel_ranges(int64_t total, int64_t least, int64_t grain, F f) {
  if (total <= least) return f(int64_t{0}, total);
  parallel_for(total, least, grain,
               [](void* context, int64_t begin, int64_t end) { (*static_cast<F*>(context))(begin, end); }, &f);
}

// Calls f for ranges of elements, in multiples of every block and cache line.
template <class F>
void parallel_for(int64_t total, int64_t least, F f) { parallel_ranges(total, least, 1024, f); }

// Calls f for ranges of items of which each is worth a thread.
template <class F>
void parallel_items(int64_t total, int64_t least, F f) { parallel_ranges(total, least, 1, f); }

// Calls function(context, part) for each part, on as many threads where parts wait for one another: each thread takes the
// next part that none has begun, the caller too, so that it need not wait for one that sleeps. What a part throws is thrown
// here when all have ended. False, and nothing is done, where the pool is in use, or the system has no threads for so many.
using PartFunction = void (*)(void* context, int part);
bool run_parts(int parts, PartFunction function, void* context);

template <class F>
bool run_parts(int parts, const F& f) {
  return run_parts(parts, [](void* context, int part) { (*static_cast<const F*>(context))(part); },
                   const_cast<void*>(static_cast<const void*>(&f)));
}

// Calls f(task, slice) for each task, of which each is worth much, on threads that take the next one when they are done. Each
// has a slice of a workspace, of so many.
template <class F>
void parallel_tasks(int64_t tasks, int64_t slices, F f) {
  std::atomic<int64_t> next{0};
  const auto take = [&](int slice) {
    for (int64_t task; (task = next.fetch_add(1, std::memory_order_relaxed)) < tasks;) f(task, slice);
  };
  const int parts = static_cast<int>(std::min<int64_t>({tasks, slices, thread_count()}));
  if (parts <= 1 || !run_parts(parts, take)) take(0);
}

template <class F>
void parallel_tasks(int64_t tasks, F f) {
  parallel_tasks(tasks, tasks, [&](int64_t task, int) { f(task); });
}

}  // namespace npu
