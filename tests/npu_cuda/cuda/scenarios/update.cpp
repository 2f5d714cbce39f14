// Graphs that are given other pointers.
#include "emulator/emulator_control.h"
#include "rig.h"

namespace npu::scenarios {
namespace {

struct Data {
  Buffer x, y, z;
  Data() {
    expect_ok(x.fill(1));
    expect_ok(y.fill(0));
    expect_ok(z.fill(0));
  }
};

Status update(Executable* graph, const std::vector<Op>& ops, std::unique_ptr<Executable>* out) {
  std::unique_ptr<Recording> recording;
  NPU_TRY(device().record(CaptureMode::ThreadLocal, true, &recording));
  NPU_TRY(record_into(recording.get(), ops));
  return device().update(graph, recording.get(), out);
}

void run(Executable* graph) {
  expect_ok(graph->launch(device().default_stream(), 1));
  expect_ok(device().synchronize(device().default_stream()));
}

void same_shape_is_updated_in_place() {
  Data data;
  std::unique_ptr<Executable> graph, next;
  expect_ok(record({{add_one(), &data.x, &data.y}}, true, &graph));
  expect_ok(update(graph.get(), {{add_one(), &data.x, &data.z}}, &next));
  expect(next == nullptr, "it is the same executable");
  expect(npu_emulator_calls("cudaGraphInstantiate") == 1, "nothing was instantiated a second time");
  run(graph.get());
  expect(holds(data.y, 0) && holds(data.z, 2), "it writes to the new place only");
}

void another_shape_is_instantiated() {
  Data data;
  std::unique_ptr<Executable> graph, next;
  expect_ok(record({{add_one(), &data.x, &data.y}}, true, &graph));
  expect_ok(update(graph.get(), {{add_one(), &data.x, &data.z}, {add_one(), &data.z, &data.z, {0}}}, &next));
  expect(next != nullptr, "there is a new one");
  expect(cudaPeekAtLastError() == cudaSuccess, "no error is left behind");
  run(next.get());
  expect(holds(data.y, 0) && holds(data.z, 3), "which runs both ops");
  run(graph.get());
  expect(holds(data.y, 2), "the old one is as it was");
}

void failed_updates_change_nothing() {
  for (const char* name : {"cudaStreamEndCapture", "cudaGraphExecUpdate"}) {
    Data data;
    std::unique_ptr<Executable> graph, next;
    expect_ok(record({{add_one(), &data.x, &data.y}}, true, &graph));
    npu_emulator_fail_call(name, 1, cudaErrorUnknown);
    expect_failure(update(graph.get(), {{add_one(), &data.x, &data.z}}, &next), StatusCode::DeviceError,
                   std::string(name) + ": cudaErrorUnknown (999)");
    expect(next == nullptr, "there is no new one");
    run(graph.get());
    expect(holds(data.y, 2) && holds(data.z, 0), "the old one is as it was");
  }
}

void broken_recordings_change_nothing() {
  Data data;
  std::unique_ptr<Executable> graph, next;
  expect_ok(record({{add_one(), &data.x, &data.y}}, true, &graph));
  expect_failure(update(graph.get(), {{allocating(), &data.x, &data.z}}, &next), StatusCode::InvalidArgument,
                 "op by allocating: cudaErrorStreamCaptureInvalidated (901)");
  run(graph.get());
  expect(holds(data.y, 2) && holds(data.z, 0), "the old one is as it was");
}

void earlier_launches_keep_their_pointers() {
  npu_emulator_set_deferred(1);
  Data data;
  const Stream stream;
  std::unique_ptr<Executable> graph, next;
  expect_ok(record({{add_one(), &data.x, &data.y}}, true, &graph));
  expect_ok(graph->launch(stream.get(), 1));
  expect_ok(update(graph.get(), {{double_and_add(), &data.x, &data.z}}, &next));
  next = nullptr;
  expect_ok(update(graph.get(), {{add_one(), &data.x, &data.z}}, &next));
  graph = nullptr;
  expect_ok(device().synchronize(stream.get()));
  expect(holds(data.y, 2) && holds(data.z, 0), "it was launched before");
}

}  // namespace

Scenarios update_scenarios() {
  return {
      {"same_shape_is_updated_in_place", same_shape_is_updated_in_place},
      {"another_shape_is_instantiated", another_shape_is_instantiated},
      {"failed_updates_change_nothing", failed_updates_change_nothing},
      {"broken_recordings_change_nothing", broken_recordings_change_nothing},
      {"earlier_launches_keep_their_pointers", earlier_launches_keep_their_pointers},
  };
}

}  // namespace npu::scenarios
