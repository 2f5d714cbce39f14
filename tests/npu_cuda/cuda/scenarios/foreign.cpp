// Captures that others began, as PyTorch does: what their graphs keep. And marks in the work of a stream.
#include "core/eager_workspace.h"
#include "core/later.h"
#include "core/stream_uses.h"
#include "emulator/emulator_control.h"
#include "rig.h"

namespace npu::scenarios {
namespace {

// A capture by calls of CUDA alone, and what comes of it.
class ForeignCapture {
 public:
  ForeignCapture() {
    expect_ok(cuda_check(cudaStreamBeginCapture(stream(), cudaStreamCaptureModeThreadLocal), "begin"));
  }
  cudaStream_t stream() const { return static_cast<cudaStream_t>(stream_.get()); }
  uint64_t number() const {
    uint64_t number = 0;
    expect_ok(device().find_capture(stream_.get(), &number));
    return number;
  }
  GraphExecOwner finish() {
    const RelaxedCapture relaxed;  // another one may go on
    cudaGraph_t graph = nullptr;
    expect_ok(cuda_check(cudaStreamEndCapture(stream(), &graph), "end"));
    const GraphOwner owner(graph);
    cudaGraphExec_t exec = nullptr;
    expect_ok(cuda_check(cudaGraphInstantiate(&exec, graph, 0), "instantiate"));
    return GraphExecOwner(exec);
  }

 private:
  Stream stream_;
};

bool is_gone(const std::weak_ptr<int>& watched) {
  drop_now();
  return watched.expired();
}

const Scenario kept("graphs_of_others_keep_what_their_launches_need", [] {
  std::weak_ptr<int> watched;
  const auto keep_in = [&](const ForeignCapture& capture) {
    const auto needs = std::make_shared<int>(1);
    watched = needs;
    expect_ok(device().keep_in_capture(capture.stream(), needs));
  };
  {
    ForeignCapture capture;
    keep_in(capture);
    GraphExecOwner exec = capture.finish();
    expect(!is_gone(watched), "the executable keeps it without the graph");
    exec.reset();
    expect(!watched.expired(), "CUDA's thread destroys nothing");
    expect(is_gone(watched), "somebody else does");
  }
  keep_in(ForeignCapture());
  expect(is_gone(watched), "so it is with a capture that is thrown away");
});

const Scenario failing_to_keep("what_cannot_be_kept_is_said_and_goes", [] {
  const auto needs = std::make_shared<int>(1);
  for (const char* name : {"cudaStreamGetCaptureInfo", "cudaUserObjectCreate", "cudaGraphRetainUserObject"}) {
    const ForeignCapture capture;
    npu_emulator_fail_call(name, 1, cudaErrorUnknown);
    expect_failure(device().keep_in_capture(capture.stream(), needs), StatusCode::DeviceError, name);
    drop_now();
    expect(needs.use_count() == 1, std::string(name) + " leaves no owner");
  }
  const Stream idle;
  expect_failure(device().keep_in_capture(idle.get(), needs), StatusCode::Internal, "has no graph");
});

const Scenario numbers("captures_have_numbers", [] {
  const ForeignCapture one, other;
  expect(one.number() != 0 && other.number() != 0 && one.number() != other.number(), "each its own");
  uint64_t number = 1;
  const Stream idle;
  expect_ok(device().find_capture(idle.get(), &number));
  expect(number == 0, "0 stands for none");
});

void* workspace_of(void* stream, uint64_t bytes) {
  EagerWorkspace workspace;
  void* data = nullptr;
  expect_ok(workspace.take(&device(), stream, bytes, &data));
  return data;
}

const Scenario workspaces("workspaces_in_a_capture_are_those_of_its_graph", [] {
  {
    const Stream eager;
    const void* outside = workspace_of(eager.get(), 64);
    ForeignCapture capture, other;
    const void* first = workspace_of(capture.stream(), 64);
    expect(workspace_of(capture.stream(), 32) == first, "launches of one capture run in order");
    expect(workspace_of(capture.stream(), 128) != first, "a larger one is another");
    expect(workspace_of(other.stream(), 64) != first && first != outside, "nobody else has it");
    const GraphExecOwner exec = capture.finish(), second = other.finish();
    expect(npu_emulator_live_objects("allocation") == 4, "the graphs have them");
    drop_workspace(&device(), eager.get());
  }
  drop_now();
  expect(npu_emulator_live_objects("allocation") == 0, "they go with the graphs");
});

const Scenario marks("marks_say_whether_the_work_before_them_is_done", [] {
  npu_emulator_set_deferred(1);
  const Data data;
  const Stream writer, reader;
  StreamUses uses;
  expect_ok(launch({add_one(), &data.x, &data.y}, writer.get()));
  expect_ok(uses.note(&device(), writer.get()));
  expect(!uses.empty() && !uses.have_passed(), "the launch waits");
  expect_ok(uses.delay(reader.get()));
  expect_ok(launch({add_one(), &data.y, &data.z}, reader.get()));
  expect_ok(device().synchronize(reader.get()));
  expect(uses.have_passed() && holds(data.z, 3), "the other stream has waited for it");

  expect_ok(launch({add_one(), &data.z, &data.z}, writer.get()));
  expect_ok(uses.note(&device(), writer.get()));
  expect(!uses.have_passed(), "the same mark again");
  expect_ok(uses.wait());
  expect(uses.have_passed() && npu_emulator_live_objects("event") == 1, "one for each stream");
});

const Scenario no_marks("what_is_captured_is_not_marked", [] {
  const ForeignCapture capture;
  StreamUses uses;
  expect_ok(uses.note(&device(), capture.stream()));
  expect(uses.empty() && uses.have_passed(), "its memory is used by the graph");
});

const Scenario failing_marks("marks_that_fail_are_reported", [] {
  const Stream stream;
  for (const char* name : {"cudaEventCreateWithFlags", "cudaEventRecord"}) {
    StreamUses uses;
    npu_emulator_fail_call(name, 1, cudaErrorUnknown);
    expect_failure(uses.note(&device(), stream.get()), StatusCode::DeviceError, name);
    expect(npu_emulator_live_objects("event") == 0, "nothing is left");
  }
  StreamUses uses;
  expect_ok(uses.note(&device(), stream.get()));
  npu_emulator_fail_call("cudaEventSynchronize", 1, cudaErrorUnknown);
  expect_failure(uses.wait(), StatusCode::DeviceError, "cudaEventSynchronize");
  npu_emulator_fail_call("cudaStreamWaitEvent", 1, cudaErrorUnknown);
  expect_failure(uses.delay(device().default_stream()), StatusCode::DeviceError, "cudaStreamWaitEvent");
});

}  // namespace
}  // namespace npu::scenarios
