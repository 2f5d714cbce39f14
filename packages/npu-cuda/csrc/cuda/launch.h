// Launches of device code: `launch(kernel<T>, {grid, block}, stream, arguments...)`, never `<<<>>>`. The one
// header that a .cu file needs for CUDA. nvcc compiles it for the GPU; g++ -xc++ -DNPU_EMULATE compiles the same
// file for the emulator, which runs its kernels on the CPU (emulator/emulator_control.h).
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "core/status.h"
#include "cuda/cuda_status.h"

#ifdef NPU_EMULATE
#include <tuple>

#include "emulator/device_code.h"
#include "emulator/kernel_launch.h"
#endif

namespace npu {

struct LaunchShape {
  dim3 grid;   // blocks; none of its sizes is 0
  dim3 block;  // threads; at most 1024, and a multiple of 32 wherever warps exchange values
  size_t shared_bytes = 0;  // of dynamic shared memory; above 48 KiB only after cudaFuncSetAttribute
};

#ifdef NPU_EMULATE

template <class... Params, class... Args>
Status launch(void (*kernel)(Params...), const LaunchShape& shape, void* stream, Args... args) {
  std::tuple<Params...> params(static_cast<Params>(args)...);
  const auto* address = reinterpret_cast<const void*>(kernel);
  const auto thread_body = [kernel, params] { std::apply(kernel, params); };
  const emulator::KernelLaunch call{address, shape.grid, shape.block, shape.shared_bytes, thread_body};
  return cuda_status(emulator::launch_kernel(call, static_cast<cudaStream_t>(stream)), "cudaLaunchKernelEx");
}

template <class T>
T* dynamic_shared() {
  return static_cast<T*>(emulator::dynamic_shared_memory());
}

#else

// Launches on a stream. Arguments are converted to what the kernel takes, now, and copied.
template <class... Params, class... Args>
Status launch(void (*kernel)(Params...), const LaunchShape& shape, void* stream, Args... args) {
  cudaLaunchConfig_t config{};
  config.gridDim = shape.grid;
  config.blockDim = shape.block;
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = static_cast<cudaStream_t>(stream);
  return cuda_status(cudaLaunchKernelEx(&config, kernel, static_cast<Params>(args)...), "cudaLaunchKernelEx");
}

#ifdef __CUDACC__
// The dynamic shared memory of the block, aligned to 128 bytes.
template <class T>
__device__ T* dynamic_shared() {
  extern __shared__ __align__(128) unsigned char npu_dynamic_shared[];
  return reinterpret_cast<T*>(npu_dynamic_shared);
}
#endif

#endif

}  // namespace npu
