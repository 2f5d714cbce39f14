// What is refused while a stream captures, which then goes on, and what is not.
#include "rig.h"

namespace npu::scenarios {
namespace {

const Scenario relaxed("relaxed_capture_lets_kernels_allocate", [] {
  const Data data;
  ExecutablePtr graph;
  expect_ok(record({{allocating(), &data.x, &data.y}}, false, &graph, CaptureMode::Relaxed));
});

// What is refused breaks nothing: the capture goes on and its graph is right.
const Scenario refusals("refusals_leave_the_capture_whole", [] {
  const Data data;
  const Stream other;
  const ExecutablePtr earlier = graph_of({{add_one(), &data.x, &data.z}});
  void* memory = nullptr;
  for (const bool is_dag : {false, true}) {
    const RecordingPtr whole = recording(is_dag);
    expect_ok(whole->begin_op({}));
    void* stream = whole->stream();
    expect_invalid(device().allocate(64, &memory),
                   "allocating 64 bytes on cuda:0 is not possible while this thread captures a graph");
    expect_invalid(device().synchronize(stream), "waiting for a stream is not possible");
    expect_invalid(device().synchronize(other.get()), "while this thread captures");
    expect_invalid(device().copy(data.x.data(), &memory, 8, Direction::ToDevice, stream),
                   "copying from or to the CPU is not possible on a stream that captures a graph");
    expect_invalid(launch({unsafe(), &data.x, &data.y}, stream),
                   "kernel unsafe allocates or waits, which is not possible on a stream that captures");
    expect_invalid(earlier->launch(stream, 1),
                   "launching a graph is not possible on a stream that captures a graph");
    expect_ok(launch({add_one(), &data.x, &data.y}, stream));
    expect_ok(whole->end_op());
    const ExecutablePtr graph = finished(whole);
    expect_ok(launch({unsafe(), &data.y, &data.y}, other.get()));
    run(graph, 1, other.get());
    expect(holds(data.y, 2) && holds(data.z, 0), "the graph computes what was recorded");
  }
});

// What breaks a capture past the launch of a kernel is seen at the end of the op.
const Scenario offences("offences_between_launches_are_seen", [] {
  const Data data;
  for (const bool is_dag : {false, true}) {
    const RecordingPtr broken = recording(is_dag);
    expect_ok(broken->begin_op({}));
    expect_ok(launch({add_one(), &data.x, &data.y}, broken->stream()));
    void* memory = nullptr;
    expect(cudaMalloc(&memory, 64) == cudaErrorStreamCaptureUnsupported, "CUDA itself refuses");
    (void)cudaGetLastError();
    expect_invalid(broken->end_op(), "cudaErrorStreamCaptureInvalidated (901)");
  }
});

const Scenario capturing("is_capturing_says_so", [] {
  const Stream stream;
  const auto is_capturing = [](void* handle) {
    bool answer = false;
    expect_ok(device().is_capturing(handle, &answer));
    return answer;
  };
  expect(!is_capturing(stream.get()), "a stream that is not captured");
  expect(!is_capturing(device().default_stream()), "the default stream");
  const RecordingPtr dag = recording(true);
  expect(is_capturing(dag->stream()), "the stream of a recording, also outside of ops");
});

const Scenario misuse("misuse_is_internal", [] {
  const RecordingPtr dag = recording(true);
  ExecutablePtr graph;
  const auto expect_internal = [](const Status& status, const std::string& fragment) {
    expect_failure(status, StatusCode::Internal, fragment);
  };
  expect_internal(dag->end_op(), "an op ends that did not begin");
  expect_internal(dag->begin_op({0}), "op 0, which was not recorded before it");
  expect_ok(dag->begin_op({}));
  expect_internal(dag->begin_op({}), "an op begins within another one");
  expect_internal(dag->finish(&graph), "within an op");
  expect_ok(dag->end_op());
  expect_ok(dag->finish(&graph));
  expect_internal(dag->finish(&graph), "a recording ends that has ended");
  expect_internal(dag->begin_op({}), "after the recording");
});

}  // namespace
}  // namespace npu::scenarios
