// The common frame of every function of the fake runtime: lock, count, fail on request of a test, remember
// the error for cudaGetLastError.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>

namespace npu::emulator {

enum class CallKind {
  Plain,
  Release,  // destroys or ends something: does so even when it fails
  Wait,     // waits for work: also returns the errors of that work
};

// Returns the error of the call. Every call fails once a kernel has failed, as on hardware.
cudaError_t call(const char* name, CallKind kind, const std::function<cudaError_t()>& body);
inline cudaError_t call(const char* name, const std::function<cudaError_t()>& body) {
  return call(name, CallKind::Plain, body);
}

void forget_calls();
void fail_call(const char* name, int64_t k, cudaError_t error);
int64_t calls(const char* name);

}  // namespace npu::emulator
