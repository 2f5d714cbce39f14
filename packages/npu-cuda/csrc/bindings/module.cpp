// The Python module npu_cuda._C: its parts in order; its enums, the build, the devices.
#include <cstdlib>
#include <stdexcept>
#include <utility>

#include "bindings/bindings.h"
#include "build_values.h"
#include "core/device.h"
#include "ops/pointwise/pointwise.h"
#ifdef NPU_EMULATE
#include "emulator/emulator_control.h"
#endif

namespace npu::bindings {
namespace {

void bind_enums(nb::module_& module) {
  nb::enum_<StatusCode>(module, "Status", nb::is_arithmetic(), "How a call ended: the `status` of our errors.")
      .value("Ok", StatusCode::Ok, "All is well.")
      .value("InvalidArgument", StatusCode::InvalidArgument, "The caller is wrong.")
      .value("NotImplemented", StatusCode::NotImplemented, "No kernel takes this.")
      .value("Internal", StatusCode::Internal, "We are wrong.")
      .value("DeviceError", StatusCode::DeviceError, "The device or its driver failed.")
      .value("Unavailable", StatusCode::Unavailable, "Not in this build, or not on this machine.");
  nb::enum_<OpKind> kinds(module, "OpKind", nb::is_arithmetic(),
                    "The ops that npu-cuda names; kinds() tells which of them this build has. The numbers never change.");
  kinds.value("EltwiseAdd", OpKind::EltwiseAdd)
      .value("EltwiseRelu", OpKind::EltwiseRelu)
      .value("Gemm", OpKind::Gemm)
      .value("BiasAdd", OpKind::BiasAdd)
      .value("ReduceSum", OpKind::ReduceSum)
      .value("MseGrad", OpKind::MseGrad)
      .value("ReluBwd", OpKind::ReluBwd)
      .value("SgdStep", OpKind::SgdStep)
      .value("Copy", OpKind::Copy)
      .value("GradZero", OpKind::GradZero)
      .value("AdamStep", OpKind::AdamStep)
      .value("StepInc", OpKind::StepInc)
      .value("BiasCorr", OpKind::BiasCorr)
      .value("LayerNormFwd", OpKind::LayerNormFwd)
      .value("LayerNormBwd", OpKind::LayerNormBwd)
      .value("BatchNormFwd", OpKind::BatchNormFwd)
      .value("BatchNormBwd", OpKind::BatchNormBwd)
      .value("GemmEpilogue", OpKind::GemmEpilogue)
      .value("MultiSgd", OpKind::MultiSgd)
      .value("MultiAdam", OpKind::MultiAdam);
  for (const OpInfo& op : pointwise::infos()) {
    if (op.kind > OpKind::MultiAdam) kinds.value(op.name.c_str(), op.kind);
  }
}

nb::dict build_info() {
  namespace is = build_values;
  nb::dict out;
  out["version"] = is::version;
  out["mode"] = is::mode;
  out["requested"] = is::requested;
  out["reason"] = is::reason;
  out["architectures"] = is::architectures;
  out["cuda_version"] = is::cuda_version;
  out["cuda_compiler"] = is::cuda_compiler;
  out["cudart"] = is::cudart;
  out["compiler"] = is::compiler;
  out["nanobind"] = is::nanobind;
  out["build_type"] = is::build_type;
  out["sanitizer"] = is::sanitizer;
  return out;
}

nb::list device_dicts() {
  nb::list out;
  for (const Device* device : devices()) {
    nb::dict row;
    row["name"] = device->name();
    row["description"] = device->description();
    row["compute_capability"] = device->compute_capability();
    out.append(row);
  }
  return out;
}

void bind_installation(nb::module_& module) {
  module.def("build_info", &build_info, nb::sig("def build_info() -> dict[str, str]"),
             "How this library was built; what does not apply is empty.");
  module.def("devices", &device_dicts, nb::sig("def devices() -> list[dict[str, Any]]"),
             "The devices that work here, the host first.");
  module.def("cuda_absence", &cuda_absence, "Why there is no CUDA device; empty if there is one.");
}

#ifdef NPU_EMULATE
void bind_emulation(nb::module_& module) {
  using nb::literals::operator""_a;
  module.def("emulator_reset", &npu_emulator_reset, "Everything below as at the start; what lives stays.");
  module.def("emulator_set_schedule", &npu_emulator_set_schedule, "schedule"_a,
             "Set the order of threads, blocks and nodes: 0 as written, 1 reversed, a larger number seeds a random one.");
  module.def("emulator_set_deferred", [](bool deferred) { npu_emulator_set_deferred(deferred); }, "deferred"_a,
             "Let work wait until something synchronizes with it.");
  module.def("emulator_fail_call", &npu_emulator_fail_call, "name"_a.none(), "k"_a, "error"_a,
             "Make the k-th call from now on of a function of the runtime, or of any, fail once with this cudaError_t.");
  module.def("emulator_calls", &npu_emulator_calls, "name"_a.none() = nb::none(),
             "Count the calls of a function of the runtime, or of all, since the last reset.");
  module.def("emulator_live_bytes", &npu_emulator_live_bytes, "Count the bytes of device memory in use.");
  module.def("emulator_live_objects", &npu_emulator_live_objects, "kind"_a.none() = nb::none(),
             "Count streams, graphs, execs, allocations and captures: one kind, or all.");
  module.def("emulator_last_report", &npu_emulator_last_report, "Return what the last kernel that went wrong did.");
}
#else
void bind_emulation(nb::module_&) {}
#endif

}  // namespace
}  // namespace npu::bindings

NB_MODULE(_C, module) {
  using namespace npu::bindings;
  static bool is_loaded = false;  // nanobind registers types once
  if (std::exchange(is_loaded, true)) {
    throw std::runtime_error("npu_cuda._C is loaded already, and cannot be imported a second time: keep it in sys.modules");
  }
  // What a script's globals hold at exit is not a leak: PyTorch's registry of custom ops keeps them alive.
  nb::set_leak_warnings(std::getenv("NPU_CUDA_LEAK_WARNINGS") != nullptr);
  module.doc() = "The native part of npu_cuda: ops, programs and graphs of the devices of this machine.";
  bind_enums(module);
  bind_specs(module);
  bind_tensor(module);
  bind_calls(module);
  bind_registry(module);
  bind_pointwise(module);
  bind_chains(module);
  bind_python_kernels(module);
  bind_traces(module);
  bind_graphs(module);
  bind_programs(module);
  bind_step_loops(module);
  bind_row_loops(module);
  bind_streams(module);
  bind_installation(module);
  bind_emulation(module);
}
