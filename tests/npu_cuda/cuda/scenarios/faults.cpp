// Every call of the runtime fails once, at every place where it is made: what fails says so, nothing is left behind,
// and the next capture is right.
#include <set>

#include "emulator/emulator_control.h"
#include "rig.h"

namespace npu::scenarios {
namespace {

// All functions of the runtime that are called.
const std::vector<std::string> kFunctions = {
    "cudaMalloc", "cudaFree", "cudaMemcpyAsync", "cudaStreamCreateWithFlags", "cudaStreamDestroy",
    "cudaStreamSynchronize", "cudaStreamIsCapturing", "cudaStreamGetCaptureInfo", "cudaStreamBeginCapture",
    "cudaStreamUpdateCaptureDependencies", "cudaStreamEndCapture", "cudaThreadExchangeStreamCaptureMode",
    "cudaGraphInstantiate", "cudaGraphUpload", "cudaGraphLaunch", "cudaGraphExecUpdate", "cudaGraphDestroy",
    "cudaGraphExecDestroy", "cudaLaunchKernelEx", "cudaGetDevice", "cudaSetDevice"};

// Those of which a failure is nobody's concern: something is given back, or made harmless to others.
const std::set<std::string> kSilent = {"cudaFree", "cudaStreamDestroy", "cudaGraphDestroy", "cudaGraphExecDestroy",
                                       "cudaThreadExchangeStreamCaptureMode"};

// Those that a machine with one device does not need.
const std::set<std::string> kLeftOut = {"cudaGetDevice", "cudaSetDevice"};

Status expect_value(const Buffer& buffer, float value) {
  Floats values;
  NPU_TRY(buffer.read(&values));
  return values == Floats(kCount, value) ? Status() : Status::internal("wrong numbers");
}

Status replace(ExecutablePtr* graph, const std::vector<Op>& ops, bool is_dag) {
  ExecutablePtr next;
  NPU_TRY(update(graph->get(), ops, &next, is_dag));
  if (next) *graph = std::move(next);
  return {};
}

// A life of a graph, from the first allocation to the last destruction.
Status life(bool is_dag) {
  Buffers data;
  NPU_TRY(data.fill());
  ExecutablePtr graph;
  NPU_TRY(record({{add_one(), &data.x, &data.y}, {double_and_add(), &data.y, &data.z, {0}}}, is_dag, &graph));
  void* stream = nullptr;
  NPU_TRY(device().create_stream(&stream));
  const StreamOwner owner(static_cast<cudaStream_t>(stream));
  NPU_TRY(graph->launch(stream, 2));
  NPU_TRY(device().synchronize(stream));
  NPU_TRY(expect_value(data.z, 5));
  NPU_TRY(replace(&graph, {{add_one(), &data.x, &data.z}, {double_and_add(), &data.z, &data.y, {0}}}, is_dag));
  NPU_TRY(replace(&graph, {{add_one(), &data.y, &data.z}}, is_dag));
  NPU_TRY(graph->launch(stream, 1));
  NPU_TRY(device().synchronize(stream));
  return expect_value(data.z, 3);
}

void expect_untouched(const std::string& place) {
  npu_emulator_fail_call(nullptr, 0, 0);
  expect(npu_emulator_live_objects(nullptr) == 0, place + " leaves no object");
  expect(npu_emulator_live_bytes() == 0, place + " leaves no memory");
  expect(cudaPeekAtLastError() == cudaSuccess, place + " leaves no error");
  expect(!this_thread_records(), place + " leaves no recording");
  if (const Status status = life(true); !status.ok()) expect(false, "after " + place + ": " + status.message());
}

void sweep(bool is_dag) {
  for (const std::string& name : kFunctions) {
    npu_emulator_reset();
    expect_ok(life(is_dag));
    const int64_t count = npu_emulator_calls(name.c_str());
    expect(count > 0 || kLeftOut.contains(name) || !is_dag, name + " is called");
    for (int64_t k = 1; k <= count; ++k) {
      const std::string place = name + " " + std::to_string(k);
      npu_emulator_fail_call(name.c_str(), k, cudaErrorUnknown);
      const Status status = life(is_dag);
      if (kSilent.contains(name)) {
        expect(status.ok(), place + ": " + status.message());
      } else {
        expect(!status.ok(), place + " is reported");
        expect_failure(status, StatusCode::DeviceError, "cudaErrorUnknown (999)");
      }
      expect_untouched(place);
    }
  }
}

// Whatever the k-th call is.
void sweep_over_all(bool is_dag) {
  npu_emulator_reset();
  expect_ok(life(is_dag));
  const int64_t count = npu_emulator_calls(nullptr);
  int64_t known = 0;
  for (const std::string& name : kFunctions) known += npu_emulator_calls(name.c_str());
  expect(known == count, "kFunctions names every function that is called: " + std::to_string(known) + " of " +
                             std::to_string(count));
  for (int64_t k = 1; k <= count; ++k) {
    npu_emulator_fail_call(nullptr, k, cudaErrorMemoryAllocation);
    const Status status = life(is_dag);
    if (!status.ok()) expect_failure(status, StatusCode::DeviceError, "cudaErrorMemoryAllocation (2): out of memory");
    expect_untouched("call " + std::to_string(k));
  }
}

const Scenario each_in_a_chain("faults_of_each_function_in_a_chain", [] { sweep(false); });
const Scenario each_in_a_dag("faults_of_each_function_in_a_dag", [] { sweep(true); });
const Scenario every_in_a_chain("faults_of_every_call_in_a_chain", [] { sweep_over_all(false); });
const Scenario every_in_a_dag("faults_of_every_call_in_a_dag", [] { sweep_over_all(true); });

const Scenario of_captures("errors_of_the_capture_itself_are_named", [] {
  npu_emulator_fail_call("cudaStreamEndCapture", 1, cudaErrorStreamCaptureUnjoined);
  expect_invalid(life(true), "cudaStreamEndCapture: cudaErrorStreamCaptureUnjoined (904)");
  expect_untouched("a capture that is not joined");
});

}  // namespace
}  // namespace npu::scenarios
