#include "emulator/runtime_call.h"

#include <map>
#include <string>

#include "emulator/runtime_state.h"

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
