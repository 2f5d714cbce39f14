// Graphs that are given other pointers.
#include "emulator/emulator_control.h"
#include "rig.h"

namespace npu::scenarios {
namespace {

const Scenario same("same_shape_is_updated_in_place", [] {
  const Data data;
  ExecutablePtr graph = graph_of({{add_one(), &data.x, &data.y}}), next;
  expect_ok(update(graph.get(), {{add_one(), &data.x, &data.z}}, &next));
  expect(next == nullptr, "it is the same executable");
  expect(npu_emulator_calls("cudaGraphInstantiate") == 1, "nothing was instantiated a second time");
  run(graph);
  expect(holds(data.y, 0) && holds(data.z, 2), "it writes to the new place only");
});

const Scenario other("another_shape_is_instantiated", [] {
  const Data data;
  ExecutablePtr graph = graph_of({{add_one(), &data.x, &data.y}}), next;
  expect_ok(update(graph.get(), {{add_one(), &data.x, &data.z}, {add_one(), &data.z, &data.z, {0}}}, &next));
  expect(next != nullptr, "there is a new one");
  expect(cudaPeekAtLastError() == cudaSuccess, "no error is left behind");
  run(next);
  expect(holds(data.y, 0) && holds(data.z, 3), "which runs both ops");
  run(graph);
  expect(holds(data.y, 2), "the old one is as it was");
});

const Scenario failed("failed_updates_and_broken_recordings_change_nothing", [] {
  const Data data;
  ExecutablePtr graph = graph_of({{add_one(), &data.x, &data.y}}), next;
  for (const char* name : {"cudaStreamEndCapture", "cudaGraphExecUpdate"}) {
    npu_emulator_fail_call(name, 1, cudaErrorUnknown);
    expect_failure(update(graph.get(), {{add_one(), &data.x, &data.z}}, &next), StatusCode::DeviceError,
                   std::string(name) + ": cudaErrorUnknown (999)");
  }
  expect_invalid(update(graph.get(), {{allocating(), &data.x, &data.z}}, &next),
                 "op by allocating: cudaErrorStreamCaptureInvalidated (901)");
  expect(next == nullptr, "there is no new one");
  run(graph);
  expect(holds(data.y, 2) && holds(data.z, 0), "the old one is as it was");
});

const Scenario earlier("earlier_launches_keep_their_pointers", [] {
  npu_emulator_set_deferred(1);
  const Data data;
  const Stream stream;
  ExecutablePtr graph = graph_of({{add_one(), &data.x, &data.y}}), next;
  expect_ok(graph->launch(stream.get(), 1));
  expect_ok(update(graph.get(), {{double_and_add(), &data.x, &data.z}}, &next));
  expect_ok(update(graph.get(), {{add_one(), &data.x, &data.z}}, &next));
  graph = nullptr;
  expect_ok(device().synchronize(stream.get()));
  expect(holds(data.y, 2) && holds(data.z, 0), "it was launched before");
});

}  // namespace
}  // namespace npu::scenarios
