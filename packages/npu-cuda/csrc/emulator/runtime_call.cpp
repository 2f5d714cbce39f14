// The common frame of every call; the names and descriptions of errors, as the CUDA runtime words them.
#include <map>
#include <string>

#include "emulator/runtime.h"

namespace npu::emulator {
namespace {

struct Fault {
  std::string name;  // empty: any
  int64_t remaining = 0;
  cudaError_t error = cudaSuccess;
};

std::map<std::string, int64_t> counts;
Fault fault;
thread_local cudaError_t last_error = cudaSuccess;

cudaError_t injected(const char* name) {
  if (fault.remaining == 0 || (!fault.name.empty() && fault.name != name)) return cudaSuccess;
  return --fault.remaining == 0 ? fault.error : cudaSuccess;
}

}  // namespace

Runtime& runtime() {
  static Runtime* const runtime = new Runtime;
  return *runtime;
}

cudaError_t call(const char* name, CallKind kind, const std::function<cudaError_t()>& body) {
  const std::lock_guard lock(runtime().mutex);
  ++counts[name];
  cudaError_t error = injected(name);
  if (error == cudaSuccess) error = runtime().device_error;
  if (error == cudaSuccess || kind == CallKind::Release) {
    const cudaError_t own = body();
    if (error == cudaSuccess) error = own;
  }
  if (error == cudaSuccess && kind != CallKind::Plain) error = runtime().device_error;
  if (error != cudaSuccess) last_error = error;
  return error;
}

void forget_calls() {
  const std::lock_guard lock(runtime().mutex);
  counts.clear();
  fault = {};
  last_error = cudaSuccess;
}

void fail_call(const char* name, int64_t k, cudaError_t error) {
  const std::lock_guard lock(runtime().mutex);
  fault = {name == nullptr ? "" : name, k, error};
}

int64_t calls(const char* name) {
  const std::lock_guard lock(runtime().mutex);
  if (name != nullptr) return counts.contains(name) ? counts.at(name) : 0;
  int64_t total = 0;
  for (const auto& [function, count] : counts) total += count;
  return total;
}

}  // namespace npu::emulator

// These two are not counted as calls: failing them would be meaningless.
cudaError_t cudaPeekAtLastError(void) {
  const std::lock_guard lock(npu::emulator::runtime().mutex);
  const cudaError_t sticky = npu::emulator::runtime().device_error;
  return sticky != cudaSuccess ? sticky : npu::emulator::last_error;
}

cudaError_t cudaGetLastError(void) {
  const cudaError_t error = cudaPeekAtLastError();
  npu::emulator::last_error = cudaSuccess;
  return error;
}

namespace {

struct ErrorText {
  cudaError_t error;
  const char* name;
  const char* text;
};

constexpr ErrorText kErrors[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInitializationError, "cudaErrorInitializationError", "initialization error"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration", "invalid configuration argument"},
    {cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver",
     "CUDA driver version is insufficient for CUDA runtime version"},
    {cudaErrorInvalidDeviceFunction, "cudaErrorInvalidDeviceFunction", "invalid device function"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorIllegalState, "cudaErrorIllegalState", "the operation cannot be performed in the present state"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorStreamCaptureIsolation, "cudaErrorStreamCaptureIsolation",
     "dependency created on uncaptured work in another stream"},
    {cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported",
     "operation not permitted when stream is capturing"},
    {cudaErrorStreamCaptureInvalidated, "cudaErrorStreamCaptureInvalidated",
     "operation failed due to a previous error during capture"},
    {cudaErrorStreamCaptureUnjoined, "cudaErrorStreamCaptureUnjoined",
     "capturing stream has unjoined work"},
    {cudaErrorStreamCaptureImplicit, "cudaErrorStreamCaptureImplicit",
     "operation would make the legacy stream depend on a capturing blocking stream"},
    {cudaErrorStreamCaptureWrongThread, "cudaErrorStreamCaptureWrongThread",
     "attempt to terminate a thread-local capture sequence from another thread"},
    {cudaErrorGraphExecUpdateFailure, "cudaErrorGraphExecUpdateFailure",
     "the graph update was not performed because it included changes which violated constraints specific to "
     "instantiated graph update"},
    {cudaErrorUnknown, "cudaErrorUnknown", "unknown error"},
};

const ErrorText* find(cudaError_t error) {
  for (const ErrorText& entry : kErrors) {
    if (entry.error == error) return &entry;
  }
  return nullptr;
}

}  // namespace

const char* cudaGetErrorName(cudaError_t error) {
  const ErrorText* entry = find(error);
  return entry == nullptr ? "unrecognized error code" : entry->name;
}

const char* cudaGetErrorString(cudaError_t error) {
  const ErrorText* entry = find(error);
  return entry == nullptr ? "unrecognized error code" : entry->text;
}
