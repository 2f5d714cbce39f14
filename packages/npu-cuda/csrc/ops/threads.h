// Threads of host kernels. There is one pool for the process, of at most thread_count() threads, the caller
// being one of them. A caller that finds it in use works alone: callers never wait for one another.
#pragma once

#include <cstdint>

namespace npu {

// OMP_NUM_THREADS, or the number of processors, until set_thread_count() is called: the backends pass
// PyTorch's number.
int thread_count();
void set_thread_count(int count);

using RangeFunction = void (*)(void* context, int64_t begin, int64_t end);
void parallel_for(int64_t total, int64_t least, RangeFunction function, void* context);

// Calls f(begin, end) for ranges that cover 0 to total, each of at least `least` items where there is more
// than one.
template <class F>
void parallel_for(int64_t total, int64_t least, F f) {
  if (total <= least) return f(int64_t{0}, total);
  parallel_for(total, least, [](void* context, int64_t begin, int64_t end) { (*static_cast<F*>(context))(begin, end); }, &f);
}

}  // namespace npu
