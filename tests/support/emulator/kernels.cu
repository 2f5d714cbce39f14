// Kernels that are right, each launched by a function that returns its error, or "".
#include "cuda/launch.h"

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

const char* text_of(npu::Status status) {
  thread_local std::string text;
  text = status.message();
  return text.c_str();
}

__device__ float warp_sum(float value) {
  for (int delta = 16; delta > 0; delta /= 2) value += __shfl_down_sync(0xffffffffu, value, delta);
  return value;
}

__device__ float block_sum(float value) {
  __shared__ float parts[32];
  value = warp_sum(value);
  __syncthreads();
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = value;
  __syncthreads();
  value = threadIdx.x < blockDim.x / 32 ? parts[threadIdx.x] : 0.0f;
  if (threadIdx.x < 32) value = warp_sum(value);
  return value;
}

template <class T>
__global__ void __launch_bounds__(1024) row_sums(const T* __restrict__ x, float* y, int64_t columns) {
  float sum = 0.0f;
  for (int64_t i = threadIdx.x; i < columns; i += blockDim.x) sum += float(__ldg(&x[blockIdx.x * columns + i]));
  sum = block_sum(sum);
  if (threadIdx.x == 0) y[blockIdx.x] = sum;
}

__global__ void scale(const float4* x, float* y, const float factor, int64_t n) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= n / 4) return;
  const float4 v = x[i];
  reinterpret_cast<float4*>(y)[i] = make_float4(v.x * factor, v.y * factor, v.z * factor, v.w * factor);
}

__global__ void reverse_by_dynamic_memory(const float* x, float* y) {
  float* values = npu::dynamic_shared<float>();
  values[threadIdx.x] = x[threadIdx.x];
  __syncthreads();
  y[threadIdx.x] = values[blockDim.x - 1 - threadIdx.x];
}

// Per lane: the votes of a warp, and what each shuffle brings.
__global__ void warp_functions(int* out) {
  const int lane = static_cast<int>(threadIdx.x);
  int* mine = out + lane * 10;
  mine[0] = static_cast<int>(__ballot_sync(0xffffffffu, lane % 3 == 0));
  mine[1] = __any_sync(0xffffffffu, lane == 7);
  mine[2] = __all_sync(0xffffffffu, lane < 31);
  mine[3] = __shfl_sync(0xffffffffu, lane, 5, 8);
  mine[4] = __shfl_up_sync(0xffffffffu, lane, 3);
  mine[5] = __shfl_down_sync(0xffffffffu, lane, 3, 16);
  mine[6] = __shfl_xor_sync(0xffffffffu, lane, 9);
  mine[7] = static_cast<int>(__match_any_sync(0xffffffffu, lane / 4));
  mine[8] = static_cast<int>(__reduce_add_sync(0xffffffffu, static_cast<unsigned>(lane)));
  mine[9] = __syncthreads_count(lane < 9);
}

// Half of a warp goes its own way, and names only itself.
__global__ void half_warps(int* out) {
  const bool low = threadIdx.x < 16;
  const unsigned mask = low ? 0x0000ffffu : 0xffff0000u;
  int value = static_cast<int>(threadIdx.x);
  if (low) {
    for (int delta = 8; delta > 0; delta /= 2) value += __shfl_xor_sync(mask, value, delta);
  } else {
    value = __shfl_sync(mask, value, 31);
  }
  out[threadIdx.x] = value;
}

__global__ void histogram(const int* x, int* counts, float* maximum, int64_t n) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= n) return;
  atomicAdd(&counts[x[i]], 1);
  auto* bits = reinterpret_cast<int*>(maximum);
  int old = *bits;
  while (__int_as_float(old) < float(x[i])) {
    const int seen = atomicCAS(bits, old, __float_as_int(float(x[i])));
    if (seen == old) break;
    old = seen;
  }
}

// A lock that one thread after the other holds.
__global__ void count_under_lock(int* lock, int* count) {
  for (bool done = false; !done;) {
    if (atomicCAS(lock, 0, 1) != 0) continue;
    *count += 1;
    __threadfence();
    atomicExch(lock, 0);
    done = true;
  }
}

struct Table {
  float* out[4];
  int64_t columns;
};

__global__ void fill_indices(const __grid_constant__ Table table) {
  const int64_t i = (int64_t{threadIdx.z} * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
  table.out[blockIdx.z * gridDim.y + blockIdx.y][blockIdx.x * table.columns + i] = float(i);
}

__global__ void read_undefined(const float* memory, float* out) {
  __shared__ float fixed[4];
  out[0] = memory[0];
  out[1] = fixed[0];
  out[2] = npu::dynamic_shared<float>()[0];
  out[3] = __shfl_sync(0x1u, 1.0f, 1);
  fixed[0] = 1.0f;  // gone when the next block begins
}

}  // namespace

EXPORT const char* run_row_sums(void* stream, int threads, const float* x, float* y, int64_t rows, int64_t n) {
  return text_of(npu::launch(row_sums<float>, {unsigned(rows), unsigned(threads)}, stream, x, y, n));
}
EXPORT const char* run_row_sums_f16(void* stream, const __half* x, float* y, int64_t rows, int64_t n) {
  return text_of(npu::launch(row_sums<__half>, {unsigned(rows), 64}, stream, x, y, n));
}
EXPORT const char* run_row_sums_bf16(void* stream, const __nv_bfloat16* x, float* y, int64_t rows, int64_t n) {
  return text_of(npu::launch(row_sums<__nv_bfloat16>, {unsigned(rows), 64}, stream, x, y, n));
}
EXPORT const char* run_scale(void* stream, const float4* x, float* y, float factor, int64_t n) {
  return text_of(npu::launch(scale, {unsigned((n / 4 + 63) / 64), 64}, stream, x, y, factor, n));
}
EXPORT const char* run_reverse(void* stream, unsigned threads, size_t shared_bytes, const float* x, float* y) {
  return text_of(npu::launch(reverse_by_dynamic_memory, {1, threads, shared_bytes}, stream, x, y));
}
EXPORT const void* address_of_reverse() { return reinterpret_cast<const void*>(&reverse_by_dynamic_memory); }
EXPORT const char* run_warp_functions(void* stream, int* out) {
  return text_of(npu::launch(warp_functions, {1, 32}, stream, out));
}
EXPORT const char* run_half_warps(void* stream, int* out) {
  return text_of(npu::launch(half_warps, {1, 32}, stream, out));
}
EXPORT const char* run_histogram(void* stream, const int* x, int* counts, float* maximum, int64_t n) {
  return text_of(npu::launch(histogram, {4, 64}, stream, x, counts, maximum, n));
}
EXPORT const char* run_count_under_lock(void* stream, int* lock, int* count) {
  return text_of(npu::launch(count_under_lock, {2, 96}, stream, lock, count));
}
EXPORT const char* run_fill_indices(void* stream, float* a, float* b, float* c, float* d) {
  return text_of(npu::launch(fill_indices, {dim3(2, 2, 2), dim3(4, 3, 2)}, stream, Table{{a, b, c, d}, 24}));
}
EXPORT const char* run_read_undefined(void* stream, const float* memory, float* out) {
  return text_of(npu::launch(read_undefined, {2, 1, 16}, stream, memory, out));
}
// A launch of nothing, of any shape.
EXPORT const char* run_shape(unsigned grid_y, unsigned threads, unsigned depth) {
  return text_of(npu::launch(count_under_lock, {dim3(0u + (grid_y > 0), grid_y), dim3(threads, 1, depth)}, nullptr,
                             static_cast<int*>(nullptr), static_cast<int*>(nullptr)));
}
