// Allocation. Memory is malloc of the exact size, so that AddressSanitizer sees where it ends, and holds poison.
#include "emulator/runtime_memory.h"

#include <cstdlib>

#include "emulator/block.h"
#include "emulator/runtime_call.h"
#include "emulator/runtime_capture.h"
#include "emulator/runtime_work.h"

namespace npu::emulator {
namespace {

constexpr size_t kAlignment = 256;

cudaError_t allocate(void** address, size_t bytes, cudaMemoryType type) {
  *address = nullptr;
  if (bytes == 0) return cudaSuccess;
  if (bytes > kDeviceBytes - live_bytes()) return cudaErrorMemoryAllocation;
  if (posix_memalign(address, kAlignment, bytes) != 0) return cudaErrorMemoryAllocation;
  poison(*address, bytes);
  runtime().allocations[*address] = {bytes, type};
  return cudaSuccess;
}

cudaError_t release(void* address, cudaMemoryType type) {
  if (address == nullptr) return cudaSuccess;
  const auto found = runtime().allocations.find(address);
  if (found == runtime().allocations.end() || found->second.type != type) return cudaErrorInvalidValue;
  runtime().allocations.erase(found);
  std::free(address);
  return cudaSuccess;
}

// cudaFree waits for the device, as on hardware.
cudaError_t release_when_idle(void* address, cudaMemoryType type) {
  if (const cudaError_t error = check_unsafe_call(); error != cudaSuccess) return error;
  finish_everything();
  return release(address, type);
}

cudaError_t allocate_now(void** address, size_t bytes, cudaMemoryType type) {
  if (const cudaError_t error = check_unsafe_call(); error != cudaSuccess) return error;
  return allocate(address, bytes, type);
}

// Graphs with allocations of their own are not emulated: in a capture both are refused, as unsafe calls are.
cudaError_t check_pool_call(cudaStream_t stream) {
  if (stream == nullptr) return cudaErrorInvalidResourceHandle;
  if (stream->capture == nullptr) return check_legacy_use(stream);
  invalidate(*stream->capture);
  return cudaErrorStreamCaptureUnsupported;
}

}  // namespace

size_t live_bytes() {
  size_t bytes = 0;
  for (const auto& [address, allocation] : runtime().allocations) bytes += allocation.bytes;
  return bytes;
}

std::map<const void*, Allocation>::const_iterator find_allocation(const void* address) {
  const auto& all = runtime().allocations;
  auto next = all.upper_bound(address);
  if (next == all.begin()) return all.end();
  --next;
  const char* end = static_cast<const char*>(next->first) + next->second.bytes;
  return static_cast<const char*>(address) < end ? next : all.end();
}

bool stays_inside(const void* address, size_t bytes) {
  const auto found = find_allocation(address);
  if (found == runtime().allocations.end()) return true;
  const char* end = static_cast<const char*>(found->first) + found->second.bytes;
  return bytes <= static_cast<size_t>(end - static_cast<const char*>(address));
}

}  // namespace npu::emulator

using namespace npu::emulator;

cudaError_t cudaMalloc(void** address, size_t bytes) {
  return call("cudaMalloc", [&] { return allocate_now(address, bytes, cudaMemoryTypeDevice); });
}

cudaError_t cudaFree(void* address) {
  return call("cudaFree", CallKind::Release, [&] { return release_when_idle(address, cudaMemoryTypeDevice); });
}

cudaError_t cudaHostAlloc(void** address, size_t bytes, unsigned) {
  return call("cudaHostAlloc", [&] { return allocate_now(address, bytes, cudaMemoryTypeHost); });
}

cudaError_t cudaMallocHost(void** address, size_t bytes) {
  return call("cudaMallocHost", [&] { return allocate_now(address, bytes, cudaMemoryTypeHost); });
}

cudaError_t cudaFreeHost(void* address) {
  return call("cudaFreeHost", CallKind::Release, [&] { return release_when_idle(address, cudaMemoryTypeHost); });
}

cudaError_t cudaMallocAsync(void** address, size_t bytes, cudaStream_t handle) {
  return call("cudaMallocAsync", [&] {
    const cudaError_t error = check_pool_call(find_stream(handle));
    return error != cudaSuccess ? error : allocate(address, bytes, cudaMemoryTypeDevice);
  });
}

cudaError_t cudaFreeAsync(void* address, cudaStream_t handle) {
  return call("cudaFreeAsync", CallKind::Release, [&] {
    cudaStream_t stream = find_stream(handle);
    if (const cudaError_t error = check_pool_call(stream); error != cudaSuccess) return error;
    const auto found = find_allocation(address);
    if (address != nullptr && (found == runtime().allocations.end() || found->first != address)) {
      return cudaErrorInvalidValue;
    }
    if (runtime().device_error != cudaSuccess) return release(address, cudaMemoryTypeDevice);
    return submit(stream, {cudaGraphNodeTypeMemFree, [address] { (void)release(address, cudaMemoryTypeDevice); }});
  });
}

cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  return call("cudaMemGetInfo", [&] {
    *free_bytes = kDeviceBytes - live_bytes();
    *total_bytes = kDeviceBytes;
    return cudaSuccess;
  });
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* address) {
  return call("cudaPointerGetAttributes", [&] {
    const auto found = find_allocation(address);
    *attributes = {};
    attributes->device = found == runtime().allocations.end() ? -2 : 0;
    attributes->type = found == runtime().allocations.end() ? cudaMemoryTypeUnregistered : found->second.type;
    attributes->hostPointer = const_cast<void*>(address);
    attributes->devicePointer = const_cast<void*>(address);
    return cudaSuccess;
  });
}
