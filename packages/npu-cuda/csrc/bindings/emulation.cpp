#include "bindings/emulation.h"

#ifdef NPU_EMULATE

#include "emulator/emulator_control.h"

namespace npu::bindings {

namespace nb = nanobind;
using nb::literals::operator""_a;

void bind_emulation(nb::module_& module) {
  module.def("emulator_reset", &npu_emulator_reset, "Everything below as at the start; what lives stays.");
  module.def("emulator_set_schedule", &npu_emulator_set_schedule, "schedule"_a,
             "Set the order of threads, blocks and nodes: 0 as written, 1 reversed, a larger number seeds a random one.");
  module.def("emulator_set_deferred", [](bool deferred) { npu_emulator_set_deferred(deferred); }, "deferred"_a,
             "Let work wait until something synchronizes with it.");
  module.def("emulator_fail_call", &npu_emulator_fail_call, "name"_a.none(), "k"_a, "error"_a,
             "Make the k-th call from now on of a function of the runtime, or of any, fail once with this cudaError_t.");
  module.def("emulator_calls", &npu_emulator_calls, "name"_a.none() = nb::none(),
             "Count the calls of a function of the runtime, or of all, since the last reset.");
  module.def("emulator_live_bytes", &npu_emulator_live_bytes, "Count the bytes of device and pinned memory in use.");
  module.def("emulator_live_objects", &npu_emulator_live_objects, "kind"_a.none() = nb::none(),
             "Count streams, events, graphs, execs, allocations and captures: one kind, or all.");
  module.def("emulator_last_report", &npu_emulator_last_report, "Return what the last kernel that went wrong did.");
}

}  // namespace npu::bindings

#else

namespace npu::bindings {

void bind_emulation(nanobind::module_&) {}

}  // namespace npu::bindings

#endif
