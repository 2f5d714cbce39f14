// What a capture records, and what is left after one that failed.
#include "emulator/emulator_control.h"
#include "rig.h"

namespace npu::scenarios {
namespace {

void expect_that_capture_works() {
  Pair data;
  const Stream stream;
  std::unique_ptr<Executable> graph;
  expect(!this_thread_records(), "nothing is being recorded");
  expect_ok(record({{add_one(), &data.x, &data.y}}, false, &graph));
  expect_ok(graph->launch(stream.get(), 1));
  expect_ok(device().synchronize(stream.get()));
  expect(holds(data.y, 2), "the next capture computes 1 + 1");
}

void records_without_running() {
  Pair data;
  const Stream stream;
  std::unique_ptr<Executable> graph;
  expect_ok(record({{add_one(), &data.x, &data.y}}, false, &graph));
  expect(holds(data.y, 0), "nothing ran");
  expect_ok(graph->launch(stream.get(), 1));
  expect_ok(device().synchronize(stream.get()));
  expect(holds(data.y, 2), "the launch ran");
}

void replays_see_new_data() {
  Pair data;
  const Stream stream;
  std::unique_ptr<Executable> graph;
  expect_ok(record({{double_and_add(), &data.x, &data.y}}, false, &graph));
  for (const float value : {3.F, 5.F}) {
    expect_ok(data.x.fill(value));
    expect_ok(graph->launch(stream.get(), 1));
    expect_ok(device().synchronize(stream.get()));
    expect(holds(data.y, 2 * value + 1), "it read what is there now");
  }
}

void chains_need_no_begin_of_an_op() {
  Pair data;
  std::unique_ptr<Recording> recording;
  std::unique_ptr<Executable> graph;
  expect_ok(device().record(CaptureMode::ThreadLocal, false, &recording));
  for (int i = 0; i < 3; ++i) {
    expect_ok(launch({add_one(), &data.x, &data.x}, recording->stream()));
    expect_ok(recording->end_op());
  }
  expect_ok(recording->finish(&graph));
  expect_ok(graph->launch(device().default_stream(), 1));
  expect_ok(device().synchronize(device().default_stream()));
  expect(holds(data.x, 4), "it ran the three");
}

void launches_count_times() {
  Pair data;
  std::unique_ptr<Executable> graph;
  expect_ok(record({{add_one(), &data.x, &data.x}}, false, &graph));
  expect_ok(graph->launch(device().default_stream(), 7));
  expect_ok(device().synchronize(device().default_stream()));
  expect(holds(data.x, 8), "it ran seven times");
}

void graph_runs_after_earlier_work_of_its_stream() {
  npu_emulator_set_deferred(1);
  Pair data;
  const Stream stream;
  std::unique_ptr<Executable> graph;
  expect_ok(record({{double_and_add(), &data.x, &data.y}}, true, &graph));
  for (int i = 0; i < 3; ++i) expect_ok(launch({add_one(), &data.x, &data.x}, stream.get()));
  expect_ok(graph->launch(stream.get(), 1));
  expect_ok(launch({add_one(), &data.y, &data.y}, stream.get()));
  expect_ok(device().synchronize(stream.get()));
  expect(holds(data.y, 10), "2 * (1 + 3) + 1, and 1 after it");
}

void broken_capture_names_the_kernel(bool is_dag, CaptureMode mode) {
  {
    Pair data;
    std::unique_ptr<Executable> graph;
    const Status status = record({{add_one(), &data.x, &data.y}, {allocating(), &data.y, &data.y, {0}}}, is_dag,
                                 &graph, mode);
    expect_failure(status, StatusCode::InvalidArgument, "op by allocating: cudaErrorStreamCaptureInvalidated (901)");
    expect(graph == nullptr, "there is no graph");
  }
  expect_that_capture_works();
}

void failing_kernel_ends_the_capture() {
  for (const bool is_dag : {false, true}) {
    Pair data;
    std::unique_ptr<Executable> graph;
    const std::vector<Op> ops = {{add_one(), &data.x, &data.y}, {failing(), &data.y, &data.y, {0}}};
    const Status status = record(ops, is_dag, &graph);
    expect_failure(status, StatusCode::InvalidArgument, "op by failing: the kernel does not like it");
  }
  expect_that_capture_works();
}

void copies_within_the_device_are_recorded() {
  Pair data;
  const Stream stream;
  std::unique_ptr<Recording> recording;
  expect_ok(device().record(CaptureMode::ThreadLocal, false, &recording));
  const uint64_t bytes = kCount * sizeof(float);
  expect_ok(device().copy(data.y.data(), data.x.data(), bytes, Direction::Within, recording->stream()));
  std::unique_ptr<Executable> graph;
  expect_ok(recording->finish(&graph));
  expect(holds(data.y, 0), "nothing was copied");
  expect_ok(graph->launch(stream.get(), 1));
  expect_ok(device().synchronize(stream.get()));
  expect(holds(data.y, 1), "the graph copies");
}

void failed_ends_free_the_thread() {
  for (const bool is_dag : {false, true}) {
    std::unique_ptr<Recording> recording;
    std::unique_ptr<Executable> graph;
    expect_ok(device().record(CaptureMode::ThreadLocal, is_dag, &recording));
    npu_emulator_fail_call("cudaStreamEndCapture", 1, cudaErrorUnknown);
    expect_failure(recording->finish(&graph), StatusCode::DeviceError, "cudaStreamEndCapture: cudaErrorUnknown");
    expect(npu_emulator_live_objects("graph") == 0, "its graph is gone");
    expect_that_capture_works();
  }
}

void dropped_recordings_leave_no_trace() {
  Pair data;
  for (const bool is_dag : {false, true}) {
    std::unique_ptr<Recording> recording;
    expect_ok(device().record(CaptureMode::Global, is_dag, &recording));
    expect_ok(recording->begin_op({}));
    expect_ok(launch({add_one(), &data.x, &data.y}, recording->stream()));
    recording = nullptr;
    expect(npu_emulator_live_objects("graph") == 0, "its graph is gone");
    expect(npu_emulator_live_objects("stream") == 0, "its stream is gone");
    expect_that_capture_works();
  }
}

void executables_outlive_streams() {
  Pair data;
  std::unique_ptr<Executable> graph;
  expect_ok(record({{add_one(), &data.x, &data.y}}, true, &graph));
  expect(npu_emulator_live_objects("stream") == 0, "the stream of the recording is gone");
  expect(npu_emulator_live_objects("graph") == 0, "so is the graph");
  {
    const Stream first;
    expect_ok(graph->launch(first.get(), 1));
    expect_ok(device().synchronize(first.get()));
  }
  const Stream second;
  expect_ok(graph->launch(second.get(), 1));
  graph = nullptr;
  expect_ok(device().synchronize(second.get()));
  expect(holds(data.y, 2), "it ran");
}

}  // namespace

Scenarios capture_scenarios() {
  return {
      {"records_without_running", records_without_running},
      {"replays_see_new_data", replays_see_new_data},
      {"chains_need_no_begin_of_an_op", chains_need_no_begin_of_an_op},
      {"launches_count_times", launches_count_times},
      {"graph_runs_after_earlier_work_of_its_stream", graph_runs_after_earlier_work_of_its_stream},
      {"broken_chain_names_the_kernel", [] { broken_capture_names_the_kernel(false, CaptureMode::ThreadLocal); }},
      {"broken_dag_names_the_kernel", [] { broken_capture_names_the_kernel(true, CaptureMode::ThreadLocal); }},
      {"broken_global_capture_names_it_too", [] { broken_capture_names_the_kernel(true, CaptureMode::Global); }},
      {"failing_kernel_ends_the_capture", failing_kernel_ends_the_capture},
      {"copies_within_the_device_are_recorded", copies_within_the_device_are_recorded},
      {"failed_ends_free_the_thread", failed_ends_free_the_thread},
      {"dropped_recordings_leave_no_trace", dropped_recordings_leave_no_trace},
      {"executables_outlive_streams", executables_outlive_streams},
  };
}

}  // namespace npu::scenarios
