// Accesses out of bounds, one by name of the first argument; "none" stays inside. Built with AddressSanitizer.
#include <cstdio>

#include "cuda/launch.h"

namespace {

__global__ void copy(const float* x, float* y, int n) {
  if (threadIdx.x <= unsigned(n)) y[threadIdx.x] = x[threadIdx.x];  // BUG out_of_device_memory, use_after_free
}

__global__ void shared(float* y, int last) {
  __shared__ float values[16];
  for (int i = 0; i <= last; ++i) values[i] = 1.0f;  // BUG out_of_shared_memory
  __syncthreads();
  y[threadIdx.x] = values[threadIdx.x];
}

__global__ void dynamic(float* y, int last) {
  float* values = npu::dynamic_shared<float>();
  for (int i = 0; i <= last; ++i) values[i] = 1.0f;  // BUG out_of_dynamic_shared_memory
  __syncthreads();
  y[threadIdx.x] = values[threadIdx.x];
}

__global__ void local(float* y, int last) {
  float values[8];
  __syncthreads();
  for (int i = 0; i <= last; ++i) values[i] = float(i);  // BUG out_of_local_memory
  __syncthreads();
  y[threadIdx.x] = values[threadIdx.x % 8];
}

__global__ void overflow(float* y, int depth) {
  volatile char frame[32768];
  frame[depth] = 1;
  if (depth < 64) overflow(y, depth + 1);  // BUG stack_overflow
  y[0] += frame[0];
}

}  // namespace

int main(int, char** arguments) {
  const std::string bug = arguments[1];
  float *x = nullptr, *y = nullptr;
  if (cudaMalloc(reinterpret_cast<void**>(&x), 16 * sizeof(float)) != cudaSuccess) return 1;
  if (cudaMalloc(reinterpret_cast<void**>(&y), 16 * sizeof(float)) != cudaSuccess) return 1;
  npu::Status status = npu::launch(copy, {1, 32}, nullptr, x, y, bug == "out_of_device_memory" ? 16 : 15);
  if (status.ok()) status = npu::launch(shared, {1, 16}, nullptr, y, bug == "out_of_shared_memory" ? 16 : 15);
  const int last = bug == "out_of_dynamic_shared_memory" ? 16 : 15;
  if (status.ok()) status = npu::launch(dynamic, {1, 16, 16 * sizeof(float)}, nullptr, y, last);
  if (status.ok()) status = npu::launch(local, {1, 16}, nullptr, y, bug == "out_of_local_memory" ? 8 : 7);
  if (status.ok()) status = npu::launch(overflow, {1, 1}, nullptr, y, bug == "stack_overflow" ? 0 : 64);
  if (bug == "use_after_free") {
    (void)cudaFree(x);
    status = npu::launch(copy, {1, 16}, nullptr, x, y, 15);
  } else {
    (void)cudaFree(x);
  }
  (void)cudaFree(y);
  std::printf("ended: %s\n", status.message().c_str());
  return status.ok() ? 0 : 1;
}
