// What is refused while a stream captures, which then goes on, and what is not.
#include "rig.h"

namespace npu::scenarios {
namespace {

void relaxed_capture_lets_kernels_allocate() {
  Pair data;
  std::unique_ptr<Executable> graph;
  expect_ok(record({{allocating(), &data.x, &data.y}}, false, &graph, CaptureMode::Relaxed));
}

// What is refused breaks nothing: the capture goes on and its graph is right.
void refusals_leave_the_capture_whole() {
  Pair data;
  const Stream other;
  void* memory = nullptr;
  for (const bool is_dag : {false, true}) {
    std::unique_ptr<Recording> recording;
    expect_ok(device().record(CaptureMode::ThreadLocal, is_dag, &recording));
    expect_ok(recording->begin_op({}));
    void* stream = recording->stream();
    expect_failure(device().allocate(64, &memory), StatusCode::InvalidArgument,
                   "allocating 64 bytes on cuda:0 is not possible while this thread captures a graph");
    expect_failure(device().synchronize(stream), StatusCode::InvalidArgument, "waiting for a stream is not possible");
    expect_failure(device().synchronize(other.get()), StatusCode::InvalidArgument, "while this thread captures");
    expect_failure(device().copy(data.x.data(), &memory, 8, Direction::ToDevice, stream), StatusCode::InvalidArgument,
                   "copying from or to the CPU is not possible on a stream that captures a graph");
    expect_failure(launch({unsafe(), &data.x, &data.y}, stream), StatusCode::InvalidArgument,
                   "kernel unsafe allocates or waits, which is not possible on a stream that captures");
    expect_ok(launch({add_one(), &data.x, &data.y}, stream));
    expect_ok(recording->end_op());
    std::unique_ptr<Executable> graph;
    expect_ok(recording->finish(&graph));
    expect_ok(launch({unsafe(), &data.y, &data.y}, other.get()));
    expect_ok(graph->launch(other.get(), 1));
    expect_ok(device().synchronize(other.get()));
    expect(holds(data.y, 2), "the graph computes what was recorded");
  }
}

// What breaks a capture past the launch of a kernel is seen at the end of the op.
void offences_between_launches_are_seen() {
  const Pair data;
  for (const bool is_dag : {false, true}) {
    std::unique_ptr<Recording> recording;
    expect_ok(device().record(CaptureMode::ThreadLocal, is_dag, &recording));
    expect_ok(recording->begin_op({}));
    expect_ok(launch({add_one(), &data.x, &data.y}, recording->stream()));
    void* memory = nullptr;
    expect(cudaMalloc(&memory, 64) == cudaErrorStreamCaptureUnsupported, "CUDA itself refuses");
    (void)cudaGetLastError();
    expect_failure(recording->end_op(), StatusCode::InvalidArgument, "cudaErrorStreamCaptureInvalidated (901)");
  }
}

void graphs_are_not_launched_into_captures() {
  Pair data;
  std::unique_ptr<Executable> graph, outer;
  expect_ok(record({{add_one(), &data.x, &data.y}}, false, &graph));
  std::unique_ptr<Recording> recording;
  expect_ok(device().record(CaptureMode::ThreadLocal, false, &recording));
  expect_failure(graph->launch(recording->stream(), 1), StatusCode::InvalidArgument,
                 "launching a graph is not possible on a stream that captures a graph");
  expect_ok(recording->finish(&outer));
}

void is_capturing_says_so() {
  const Stream stream;
  bool is_capturing = true;
  expect_ok(device().is_capturing(stream.get(), &is_capturing));
  expect(!is_capturing, "a stream that is not captured");
  expect_ok(device().is_capturing(device().default_stream(), &is_capturing));
  expect(!is_capturing, "the default stream");
  std::unique_ptr<Recording> recording;
  expect_ok(device().record(CaptureMode::ThreadLocal, true, &recording));
  expect_ok(device().is_capturing(recording->stream(), &is_capturing));
  expect(is_capturing, "the stream of a recording, also outside of ops");
}

void misuse_is_internal() {
  std::unique_ptr<Recording> recording;
  std::unique_ptr<Executable> graph;
  expect_ok(device().record(CaptureMode::ThreadLocal, true, &recording));
  expect_failure(recording->end_op(), StatusCode::Internal, "an op ends that did not begin");
  expect_failure(recording->begin_op({0}), StatusCode::Internal, "op 0, which was not recorded before it");
  expect_ok(recording->begin_op({}));
  expect_failure(recording->begin_op({}), StatusCode::Internal, "an op begins within another one");
  expect_failure(recording->finish(&graph), StatusCode::Internal, "within an op");
  expect_ok(recording->end_op());
  expect_ok(recording->finish(&graph));
  expect_failure(recording->finish(&graph), StatusCode::Internal, "a recording ends that has ended");
  expect_failure(recording->begin_op({}), StatusCode::Internal, "after the recording");
}

}  // namespace

Scenarios refusal_scenarios() {
  return {
      {"relaxed_capture_lets_kernels_allocate", relaxed_capture_lets_kernels_allocate},
      {"refusals_leave_the_capture_whole", refusals_leave_the_capture_whole},
      {"offences_between_launches_are_seen", offences_between_launches_are_seen},
      {"graphs_are_not_launched_into_captures", graphs_are_not_launched_into_captures},
      {"is_capturing_says_so", is_capturing_says_so},
      {"misuse_is_internal", misuse_is_internal},
  };
}

}  // namespace npu::scenarios
