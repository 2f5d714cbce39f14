// Launches of kernels, their limits, and what is known of a kernel.
#include "emulator/kernel_launch.h"
#include "emulator/runtime_call.h"
#include "emulator/runtime_work.h"
#include "emulator/symbols.h"

namespace npu::emulator {
namespace {

constexpr uint64_t kMaxThreads = 1024;
constexpr size_t kDefaultSharedBytes = 48 << 10;
constexpr size_t kMaxSharedBytes = 227 << 10;

size_t shared_limit(const void* kernel) {
  const auto raised = runtime().dynamic_shared_limit.find(kernel);
  if (raised == runtime().dynamic_shared_limit.end()) return kDefaultSharedBytes;
  return std::max(kDefaultSharedBytes, static_cast<size_t>(raised->second) + static_shared_bytes(kernel));
}

bool inside(dim3 size, unsigned x, unsigned y, unsigned z) {
  return size.x > 0 && size.y > 0 && size.z > 0 && size.x <= x && size.y <= y && size.z <= z;
}

cudaError_t check_limits(const KernelLaunch& launch) {
  const dim3 block = launch.block;
  if (!inside(launch.grid, 2147483647u, 65535, 65535)) return cudaErrorInvalidConfiguration;
  if (!inside(block, 1024, 1024, 64)) return cudaErrorInvalidConfiguration;
  if (uint64_t{block.x} * block.y * block.z > kMaxThreads) return cudaErrorInvalidConfiguration;
  if (launch.shared_bytes == 0) return cudaSuccess;
  const size_t shared = launch.shared_bytes + static_shared_bytes(launch.kernel);
  return shared > shared_limit(launch.kernel) ? cudaErrorInvalidValue : cudaSuccess;
}

}  // namespace

cudaError_t launch_kernel(const KernelLaunch& launch, cudaStream_t handle) {
  return call("cudaLaunchKernelEx", [&] {
    cudaStream_t stream = find_stream(handle);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    if (const cudaError_t error = check_limits(launch); error != cudaSuccess) return error;
    return submit(stream, {cudaGraphNodeTypeKernel, [launch] { run_on_device(launch); }, launch});
  });
}

}  // namespace npu::emulator

using namespace npu::emulator;

// Registers are not counted, and the bound of __launch_bounds__ is not known: both as if there were no limit.
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void* kernel) {
  return call("cudaFuncGetAttributes", [&] {
    if (kernel == nullptr) return cudaErrorInvalidDeviceFunction;
    *attributes = {};
    attributes->sharedSizeBytes = static_shared_bytes(kernel);
    attributes->maxThreadsPerBlock = kMaxThreads;
    attributes->numRegs = 32;
    attributes->ptxVersion = 90;
    attributes->binaryVersion = 90;
    attributes->maxDynamicSharedSizeBytes =
        static_cast<int>(shared_limit(kernel) - std::min(shared_limit(kernel), static_shared_bytes(kernel)));
    return cudaSuccess;
  });
}

cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value) {
  return call("cudaFuncSetAttribute", [&] {
    if (kernel == nullptr) return cudaErrorInvalidDeviceFunction;
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
    if (value < 0 || static_cast<size_t>(value) + static_shared_bytes(kernel) > kMaxSharedBytes) {
      return cudaErrorInvalidValue;
    }
    runtime().dynamic_shared_limit[kernel] = value;
    return cudaSuccess;
  });
}

cudaError_t cudaFuncGetName(const char** name, const void* kernel) {
  return call("cudaFuncGetName", [&] {
    if (kernel == nullptr) return cudaErrorInvalidDeviceFunction;
    *name = kernel_name(kernel).c_str();
    return cudaSuccess;
  });
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void* kernel, int block,
                                                          size_t shared) {
  return call("cudaOccupancyMaxActiveBlocksPerMultiprocessor", [&] {
    if (kernel == nullptr) return cudaErrorInvalidDeviceFunction;
    if (block <= 0 || static_cast<uint64_t>(block) > kMaxThreads) return cudaErrorInvalidValue;
    *blocks = shared > kMaxSharedBytes ? 0 : 2048 / block;
    return cudaSuccess;
  });
}
