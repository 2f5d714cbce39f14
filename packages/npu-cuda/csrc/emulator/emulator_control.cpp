#include "emulator/emulator_control.h"

#include <string_view>

#include "emulator/kernel_launch.h"
#include "emulator/runtime.h"

using namespace npu::emulator;

void npu_emulator_reset(void) {
  const std::lock_guard lock(runtime().mutex);
  finish_everything();
  runtime().device_error = cudaSuccess;
  runtime().deferred = false;
  runtime().devices = 1;
  set_schedule(0);
  set_last_report("");
  forget_calls();  // a pending failure does not carry over to the next call
  cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
  (void)cudaThreadExchangeStreamCaptureMode(&mode);
  forget_calls();
}

void npu_emulator_set_schedule(int schedule) { set_schedule(schedule); }

void npu_emulator_set_devices(int count) {
  const std::lock_guard lock(runtime().mutex);
  runtime().devices = count;
}

void npu_emulator_set_deferred(int deferred) {
  const std::lock_guard lock(runtime().mutex);
  finish_everything();
  runtime().deferred = deferred != 0;
}

void npu_emulator_fail_call(const char* name, int64_t k, int error) {
  fail_call(name, k, static_cast<cudaError_t>(error));
}

int64_t npu_emulator_calls(const char* name) { return calls(name); }

int64_t npu_emulator_live_bytes(void) {
  const std::lock_guard lock(runtime().mutex);
  return static_cast<int64_t>(live_bytes());
}

int64_t npu_emulator_live_objects(const char* kind) {
  const Runtime& state = runtime();
  const std::lock_guard lock(runtime().mutex);
  const auto count = [&](std::string_view name, size_t size) {
    return kind == nullptr || name == kind ? static_cast<int64_t>(size) : 0;
  };
  return count("allocation", state.allocations.size()) + count("stream", state.streams.size()) +
         count("event", state.events.size()) + count("graph", state.graphs.size()) + count("exec", state.execs.size()) +
         count("capture", state.captures.size());
}

const char* npu_emulator_last_report(void) {
  thread_local std::string text;
  text = last_report();
  return text.c_str();
}
