// Kernels with one bug each. The emulator has to find it: by a report, or by results that depend on the schedule.
#include "cuda/launch.h"

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

const char* text_of(npu::Status status) {
  thread_local std::string text;
  text = status.message();
  return text.c_str();
}

// Reads what its neighbour writes, without waiting for it unless it is repaired.
template <bool kRepaired>
__global__ void rotate(const float* x, float* y) {
  __shared__ float values[256];
  values[threadIdx.x] = x[threadIdx.x];
  if (kRepaired) __syncthreads();
  y[threadIdx.x] = values[(threadIdx.x + 1) % blockDim.x];
}

// Writes for the next round what others still read in this one.
template <bool kRepaired>
__global__ void rotate_twice(const float* x, float* y) {
  __shared__ float values[256];
  values[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  const float next = values[(threadIdx.x + 1) % blockDim.x];
  if (kRepaired) __syncthreads();
  values[threadIdx.x] = next;
  __syncthreads();
  y[threadIdx.x] = values[(threadIdx.x + 1) % blockDim.x];
}

// Two lanes write, two read: right only where the warp runs in lockstep.
template <bool kRepaired>
__global__ void exchange_in_warp(const float* x, float* y) {
  __shared__ float values[32];
  values[threadIdx.x] = x[threadIdx.x];
  if (kRepaired) __syncwarp();
  y[threadIdx.x] = values[threadIdx.x ^ 1u];
}

template <bool kRepaired>
__global__ void add_up(float* sum) {
  if (kRepaired) {
    atomicAdd(sum, 1.0f);
  } else {
    const float old = *sum;
    __syncwarp();
    *sum = old + 1.0f;
  }
}

__global__ void sum_of_a_full_warp(const float* x, float* y) {
  float sum = x[threadIdx.x];
  for (int delta = 16; delta > 0; delta /= 2) sum += __shfl_down_sync(0xffffffffu, sum, delta);
  if (threadIdx.x == 0) *y = sum;
}

__global__ void barrier_that_some_skip(float* y) {
  if (threadIdx.x >= 40) return;
  __syncthreads();
  y[threadIdx.x] = 1.0f;
}

__global__ void barriers_in_two_branches(float* y) {
  if (threadIdx.x % 2 == 0) {
    __syncthreads();
  } else {
    y[threadIdx.x] = 1.0f;
    __syncthreads();
  }
}

__global__ void barrier_against_shuffle(float* y) {
  if (threadIdx.x < 16) {
    y[threadIdx.x] = __shfl_down_sync(0xffffffffu, 1.0f, 1);
  } else {
    __syncthreads();
  }
}

__global__ void shuffle_with_lanes_that_ended(float* y) {
  if (threadIdx.x >= 24) return;
  y[threadIdx.x] = __shfl_down_sync(0xffffffffu, 1.0f, 1);
}

__global__ void mask_without_oneself(float* y) { y[threadIdx.x] = __shfl_sync(0x0000ffffu, 1.0f, 0); }

__global__ void trap_where_negative(const float* x) {
  if (x[threadIdx.x] < 0.0f) __trap();
}

__global__ void overflow_the_stack(float* y, int depth) {
  volatile char frame[16384];
  frame[0] = static_cast<char>(depth);
  if (depth > 0) overflow_the_stack(y, depth - 1);
  y[0] += frame[0];
}

}  // namespace

EXPORT const char* run_rotate(bool repaired, const float* x, float* y) {
  return text_of(npu::launch(repaired ? rotate<true> : rotate<false>, {1, 256}, nullptr, x, y));
}
EXPORT const char* run_rotate_twice(bool repaired, const float* x, float* y) {
  return text_of(npu::launch(repaired ? rotate_twice<true> : rotate_twice<false>, {1, 256}, nullptr, x, y));
}
EXPORT const char* run_exchange_in_warp(bool repaired, const float* x, float* y) {
  return text_of(npu::launch(repaired ? exchange_in_warp<true> : exchange_in_warp<false>, {1, 32}, nullptr, x, y));
}
EXPORT const char* run_add_up(bool repaired, float* sum) {
  return text_of(npu::launch(repaired ? add_up<true> : add_up<false>, {1, 32}, nullptr, sum));
}
EXPORT const char* run_sum_of_a_full_warp(unsigned threads, const float* x, float* y) {
  return text_of(npu::launch(sum_of_a_full_warp, {1, threads}, nullptr, x, y));
}
EXPORT const char* run_trap(const float* x) {
  return text_of(npu::launch(trap_where_negative, {1, 32}, nullptr, x));
}
EXPORT const char* run_overflow(float* y, int depth) {
  return text_of(npu::launch(overflow_the_stack, {1, 1}, nullptr, y, depth));
}
EXPORT const char* run_diverging(const char* name, float* y) {
  const std::string kernel = name;
  void (*chosen)(float*) = kernel == "barrier_that_some_skip"          ? barrier_that_some_skip
                           : kernel == "barriers_in_two_branches"      ? barriers_in_two_branches
                           : kernel == "barrier_against_shuffle"       ? barrier_against_shuffle
                           : kernel == "shuffle_with_lanes_that_ended" ? shuffle_with_lanes_that_ended
                                                                       : mask_without_oneself;
  return text_of(npu::launch(chosen, {1, 64}, nullptr, y));
}
