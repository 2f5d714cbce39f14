// Copies and fills.
#include <cstring>

#include "emulator/runtime_call.h"
#include "emulator/runtime_capture.h"
#include "emulator/runtime_memory.h"
#include "emulator/runtime_work.h"

namespace npu::emulator {
namespace {

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

// Calls without a stream use the legacy stream.
cudaError_t check_synchronous_call() {
  const cudaError_t error = check_legacy_use(&runtime().legacy);
  return error != cudaSuccess ? error : check_unsafe_call();
}

}  // namespace
}  // namespace npu::emulator

using namespace npu::emulator;

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  return call("cudaMemcpyAsync", [&] { return copy(to, from, bytes, kind, find_stream(stream)); });
}

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  return call("cudaMemcpy", CallKind::Wait, [&] {
    if (const cudaError_t error = check_synchronous_call(); error != cudaSuccess) return error;
    const cudaError_t error = copy(to, from, bytes, kind, &runtime().legacy);
    if (error == cudaSuccess) finish_stream(&runtime().legacy);
    return error;
  });
}

cudaError_t cudaMemsetAsync(void* address, int value, size_t bytes, cudaStream_t stream) {
  return call("cudaMemsetAsync", [&] { return fill(address, value, bytes, find_stream(stream)); });
}

cudaError_t cudaMemset(void* address, int value, size_t bytes) {
  return call("cudaMemset", [&] {
    const cudaError_t error = check_synchronous_call();
    return error != cudaSuccess ? error : fill(address, value, bytes, &runtime().legacy);
  });
}
