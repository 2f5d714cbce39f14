// From a call to a launch: what dispatch refuses before anything runs.
#include "core/dispatch.h"

#include "core/builtin.h"
#include "core/graph.h"
#include "rig.h"

// In place of builtin/, core/devices.cpp and core/graph.cpp, which would bring every op and every device.
namespace npu {

std::vector<OpInfo> builtin_ops() { return {{OpKind::Copy, "Copy", 1, 1, 1}}; }
std::vector<KernelPtr> builtin_kernels() { return {scenarios::add_one()}; }

Status find_device(DeviceType, int, Device** out) {
  *out = &scenarios::device();
  return {};
}

Status keep_in_graph(Device* device, void* stream, const std::shared_ptr<void>& needs) {
  return device->keep_in_capture(stream, needs);
}

Status launch_or_record(Device* device, const OpInfo&, const KernelPtr& kernel, const OpCall& call,
                        const std::shared_ptr<void>&) {
  return device->launch(kernel, call);
}

}  // namespace npu

namespace npu::scenarios {
namespace {

const Scenario null_stream("a_null_stream_is_refused", [] {
  const Data data;
  const TensorDesc input = desc_of(data.x), output = desc_of(data.y);
  OpCall call{};
  call.struct_size = sizeof(OpCall);
  call.num_inputs = call.num_outputs = 1;
  call.inputs = &input;
  call.outputs = &output;
  const std::string message = "Copy: the stream is null; the legacy default stream of CUDA is the handle 1";
  expect_invalid(dispatch(OpKind::Copy, call), message);
  expect_invalid(launch_by_id("add_one", call), message);
  expect(holds(data.y, 0), "nothing was launched");

  call.stream = device().default_stream();
  expect_ok(dispatch(OpKind::Copy, call));
  expect(holds(data.y, 2), "the kernel ran on the stream that was given");
});

}  // namespace
}  // namespace npu::scenarios
