// What a capture records, and what is left after one that failed.
#include "emulator/emulator_control.h"
#include "rig.h"

namespace npu::scenarios {
namespace {

void expect_that_capture_works() {
  const Data data;
  expect(!this_thread_records(), "nothing is being recorded");
  run(graph_of({{add_one(), &data.x, &data.y}}, false));
  expect(holds(data.y, 2), "the next capture computes 1 + 1");
}

const Scenario replays("what_is_recorded_runs_at_each_launch_on_what_is_there_then", [] {
  Data data;
  const Stream stream;
  const ExecutablePtr graph = graph_of({{double_and_add(), &data.x, &data.y}}, false);
  expect(holds(data.y, 0), "nothing ran");
  for (const float value : {3.F, 5.F}) {
    expect_ok(data.x.fill(value));
    run(graph, 1, stream.get());
    expect(holds(data.y, 2 * value + 1), "it read what is there now");
  }
});

const Scenario chains("chains_need_no_begin_of_an_op", [] {
  const Data data;
  const RecordingPtr chain = recording(false);
  for (int i = 0; i < 3; ++i) {
    expect_ok(launch({add_one(), &data.x, &data.x}, chain->stream()));
    expect_ok(chain->end_op());
  }
  run(finished(chain), 7);
  expect(holds(data.x, 22), "it ran the three, seven times");
});

const Scenario order("graph_runs_after_earlier_work_of_its_stream", [] {
  npu_emulator_set_deferred(1);
  const Data data;
  const Stream stream;
  const ExecutablePtr graph = graph_of({{double_and_add(), &data.x, &data.y}});
  for (int i = 0; i < 3; ++i) expect_ok(launch({add_one(), &data.x, &data.x}, stream.get()));
  expect_ok(graph->launch(stream.get(), 1));
  expect_ok(launch({add_one(), &data.y, &data.y}, stream.get()));
  expect_ok(device().synchronize(stream.get()));
  expect(holds(data.y, 10), "2 * (1 + 3) + 1, and 1 after it");
});

const Scenario breaking("kernels_that_break_a_capture_or_fail_in_it_are_named", [] {
  const Data data;
  const auto record_first_and = [&](const KernelPtr& kernel, bool is_dag, CaptureMode mode) {
    ExecutablePtr graph;
    Status status = record({{add_one(), &data.x, &data.y}, {kernel, &data.y, &data.y, {0}}}, is_dag, &graph, mode);
    expect(graph == nullptr, "there is no graph");
    return status;
  };
  for (const bool is_dag : {false, true}) {
    for (const CaptureMode mode : {CaptureMode::ThreadLocal, CaptureMode::Global}) {
      expect_invalid(record_first_and(allocating(), is_dag, mode),
                     "op by allocating: cudaErrorStreamCaptureInvalidated (901)");
      expect_that_capture_works();
      expect_invalid(record_first_and(failing(), is_dag, mode), "op by failing: the kernel does not like it");
      expect_that_capture_works();
    }
  }
});

const Scenario copies("copies_within_the_device_are_recorded", [] {
  const Data data;
  const RecordingPtr chain = recording(false);
  expect_ok(device().copy(data.y.data(), data.x.data(), kBytes, Direction::Within, chain->stream()));
  const ExecutablePtr graph = finished(chain);
  expect(holds(data.y, 0), "nothing was copied");
  run(graph);
  expect(holds(data.y, 1), "the graph copies");
});

const Scenario ends("failed_ends_free_the_thread", [] {
  for (const bool is_dag : {false, true}) {
    const RecordingPtr failed = recording(is_dag);
    ExecutablePtr graph;
    npu_emulator_fail_call("cudaStreamEndCapture", 1, cudaErrorUnknown);
    expect_failure(failed->finish(&graph), StatusCode::DeviceError, "cudaStreamEndCapture: cudaErrorUnknown");
    expect(npu_emulator_live_objects("graph") == 0, "its graph is gone");
    expect_that_capture_works();
  }
});

const Scenario drops("dropped_recordings_leave_no_trace", [] {
  const Data data;
  for (const bool is_dag : {false, true}) {
    RecordingPtr dropped = recording(is_dag, CaptureMode::Global);
    expect_ok(dropped->begin_op({}));
    expect_ok(launch({add_one(), &data.x, &data.y}, dropped->stream()));
    dropped = nullptr;
    expect(npu_emulator_live_objects("graph") == 0, "its graph is gone");
    expect(npu_emulator_live_objects("stream") == 0, "its stream is gone");
    expect_that_capture_works();
  }
});

const Scenario lives("executables_outlive_streams", [] {
  const Data data;
  ExecutablePtr graph = graph_of({{add_one(), &data.x, &data.y}});
  expect(npu_emulator_live_objects("stream") == 0, "the stream of the recording is gone");
  expect(npu_emulator_live_objects("graph") == 0, "so is the graph");
  {
    const Stream first;
    run(graph, 1, first.get());
  }
  const Stream second;
  expect_ok(graph->launch(second.get(), 1));
  graph = nullptr;
  expect_ok(device().synchronize(second.get()));
  expect(holds(data.y, 2), "it ran");
});

}  // namespace
}  // namespace npu::scenarios
