// Memory, copies and fills. Memory is malloc of the exact size, so that AddressSanitizer sees where it ends, and holds
// poison.
#include <cstdlib>
#include <cstring>

#include "emulator/block.h"
#include "emulator/runtime.h"

namespace npu::emulator {
namespace {

constexpr size_t kAlignment = 256;

cudaError_t allocate(void** address, size_t bytes) {
  *address = nullptr;
  if (const cudaError_t error = check_unsafe_call(); error != cudaSuccess) return error;
  if (bytes == 0) return cudaSuccess;
  if (bytes > kDeviceBytes - live_bytes()) return cudaErrorMemoryAllocation;
  if (posix_memalign(address, kAlignment, bytes) != 0) return cudaErrorMemoryAllocation;
  poison(*address, bytes);
  runtime().allocations[*address] = bytes;
  return cudaSuccess;
}

// It waits for the device, as on hardware.
cudaError_t release(void* address) {
  if (const cudaError_t error = check_unsafe_call(); error != cudaSuccess) return error;
  finish_everything();
  if (address == nullptr) return cudaSuccess;
  if (runtime().allocations.erase(address) == 0) return cudaErrorInvalidValue;
  std::free(address);
  return cudaSuccess;
}

bool is_pageable(const void* address) { return find_allocation(address) == runtime().allocations.end(); }

// From pageable memory the host may write again as soon as the call is back; into it, the call waits.
cudaError_t copy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  if (stream == nullptr) return cudaErrorInvalidResourceHandle;
  if (!stays_inside(to, bytes) || !stays_inside(from, bytes)) return cudaErrorInvalidValue;
  Work work{cudaGraphNodeTypeMemcpy, [=] { std::memmove(to, from, bytes); }};
  if (kind == cudaMemcpyHostToDevice && is_pageable(from) && stream->capture == nullptr) {
    const auto* bytes_of = static_cast<const char*>(from);
    const std::vector<char> staged(bytes_of, bytes_of + bytes);
    work.run = [=] { std::memcpy(to, staged.data(), bytes); };
  }
  const cudaError_t error = submit(stream, std::move(work));
  if (error != cudaSuccess || stream->capture != nullptr) return error;
  if (kind == cudaMemcpyDeviceToHost && is_pageable(to)) finish_stream(stream);
  return cudaSuccess;
}

cudaError_t fill(void* address, int value, size_t bytes, cudaStream_t stream) {
  if (stream == nullptr) return cudaErrorInvalidResourceHandle;
  if (!stays_inside(address, bytes)) return cudaErrorInvalidValue;
  return submit(stream, {cudaGraphNodeTypeMemset, [=] { std::memset(address, value, bytes); }});
}

}  // namespace

size_t live_bytes() {
  size_t bytes = 0;
  for (const auto& [address, size] : runtime().allocations) bytes += size;
  return bytes;
}

std::map<const void*, size_t>::const_iterator find_allocation(const void* address) {
  const auto& all = runtime().allocations;
  auto next = all.upper_bound(address);
  if (next == all.begin()) return all.end();
  --next;
  const char* end = static_cast<const char*>(next->first) + next->second;
  return static_cast<const char*>(address) < end ? next : all.end();
}

bool stays_inside(const void* address, size_t bytes) {
  const auto found = find_allocation(address);
  if (found == runtime().allocations.end()) return true;
  const char* end = static_cast<const char*>(found->first) + found->second;
  return bytes <= static_cast<size_t>(end - static_cast<const char*>(address));
}

}  // namespace npu::emulator

using namespace npu::emulator;

cudaError_t cudaMalloc(void** address, size_t bytes) {
  return call("cudaMalloc", [&] { return allocate(address, bytes); });
}

cudaError_t cudaFree(void* address) {
  return call("cudaFree", CallKind::Release, [&] { return release(address); });
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  return call("cudaMemcpyAsync", [&] { return copy(to, from, bytes, kind, find_stream(stream)); });
}

cudaError_t cudaMemsetAsync(void* address, int value, size_t bytes, cudaStream_t stream) {
  return call("cudaMemsetAsync", [&] { return fill(address, value, bytes, find_stream(stream)); });
}
