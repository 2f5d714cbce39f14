// Loads the code of a kernel before it is launched: CUDA does so at the first launch, and may allocate, which breaks
// a capture, including an outer one that this call joins. Use it as KernelFunctions::prepare. Once per kernel
// and device; after that it is one read.
#pragma once

#include <atomic>

#include "core/call.h"
#include "cuda/cuda_handles.h"
#include "cuda/launch.h"

namespace npu {

// `loaded`: a bit per device. Not inlined: there are a thousand kernels.
[[gnu::noinline]] inline Status load_code(const void* code, std::atomic<uint64_t>* loaded, const OpCall& call,
                                          void** state) {
  *state = nullptr;
  const uint64_t device = uint64_t{1} << (call.outputs[0].device_id & 63);
  if (loaded->load(std::memory_order_relaxed) & device) return {};
  const RelaxedCapture relaxed;
  cudaFuncAttributes attributes;
  NPU_TRY(cuda_status(cudaFuncGetAttributes(&attributes, code), "cudaFuncGetAttributes"));
  loaded->fetch_or(device, std::memory_order_relaxed);
  return {};
}

template <auto kernel>
Status load_kernel(const OpCall& call, void** state) {
  static std::atomic<uint64_t> loaded{0};
  return load_code(reinterpret_cast<const void*>(kernel), &loaded, call, state);
}

}  // namespace npu
