

#include "bindings/bindings.h"
#include "bindings/specs.h"
#include "bindings/tensors.h"
#include "core/call_checks.h"
#include "core/dispatch.h"
#include "core/eager_workspace.h"

namespace npu::bindings {
namespace {

// The device that kernels are chosen for; one that is not here, but known, has no compute capability.
struct Target {
  DeviceType type;
  int id;
  int compute_capability;
};

Target target_argument(nb::handle name) {
  const std::string wanted = text_argument(name, {"select", "device"});
  Device* device = nullptr;
  Status status = find_device(wanted, &device);
  if (status.ok()) return {device->type(), device->id(), device->compute_capability()};
  if (status.code() != StatusCode::Unavailable) raise(std::move(status).at("select"));
  return {DeviceType::Cuda, 0, 0};
}

std::vector<TensorDesc> specs_argument(nb::handle list, const char* name, const Target& target) {
  if (!PyList_Check(list.ptr()) && !PyTuple_Check(list.ptr())) {
    raise_type_error(ArgName{"select", name}.text() + " must be a list or tuple of TensorSpec, not " +
                     nb::type_name(list.type()).c_str());
  }
  std::vector<TensorDesc> descs;
  for (nb::handle item : list) {
    if (!nb::isinstance<TensorSpec>(item)) {
      raise_type_error(ArgName{"select", name, int(descs.size())}.text() + " must be a TensorSpec, not " +
                       nb::type_name(item.type()).c_str());
    }
    descs.push_back(on_device(nb::cast<const TensorSpec&>(item), target.type, target.id));
  }
  return descs;
}

Selection select_kernel(nb::handle kind, nb::handle inputs, nb::handle outputs, nb::handle schema_id,
                        nb::handle attrs_bytes, nb::handle device, bool deterministic) {
  const Target target = target_argument(device);
  const std::vector<TensorDesc> read = specs_argument(inputs, "inputs", target);
  const std::vector<TensorDesc> written = specs_argument(outputs, "outputs", target);
  const AttrsArgument attrs(schema_id, attrs_bytes, "select");
  const OpKind op = kind_argument(kind, "select");
  const OpInfo* info = KernelRegistry::instance().snapshot().find_op(op);
  if (!info) {
    raise(Status::not_implemented("select: op kind " + std::to_string(int(op)) +
                                  " is not in this build; npu_cuda.kinds() lists those that are"));
  }
  OpCall call{};
  call.struct_size = sizeof(OpCall);
  call.num_inputs = int32_t(read.size());
  call.num_outputs = int32_t(written.size());
  call.compute_capability = target.compute_capability;
  call.inputs = read.data();
  call.outputs = written.data();
  call.attrs = attrs.blob();
  check(check_call(*info, call, false).at("select"));
  return select(*info, call, target.type, {deterministic, workspace_limit()});
}


nb::list refusals_of(const Selection& selection) {
  nb::list all;
  for (const Refusal& refusal : selection.refusals) all.append(nb::make_tuple(refusal.kernel_id, text_object(refusal.reason)));
  return all;
}

}  // namespace

void bind_selections(nb::module_& module) {
  nb::class_<Selection>(module, "Selection", "Which kernel takes a call, and why the ones asked before it do not.")
      .def_prop_ro("kernel_id",
                   [](const Selection& self) {
                     return self.kernel ? nb::cast(self.kernel->traits().id) : nb::object(nb::none());
                   },
                   nb::sig("def kernel_id(self) -> str | None"), "None: no kernel takes the call.")
      .def_prop_ro("workspace_bytes", [](const Selection& self) { return self.kernel ? self.workspace_bytes : 0; },
                   "What the kernel needs besides the tensors.")
      .def_prop_ro("refusals", &refusals_of, nb::sig("def refusals(self) -> list[tuple[str, str]]"),
                   "Kernel ids and reasons, in the order in which the kernels were asked.")
      .def("__repr__", [](const Selection& self) {
        return "Selection(" + (self.kernel ? self.kernel->traits().id : "no kernel") + ", " +
               std::to_string(self.refusals.size()) + " refusals)";
      });
  module.def("select", &select_kernel, nb::arg("kind"), nb::arg("inputs"), nb::arg("outputs"), nb::arg("schema_id") = 0,
             nb::arg("attrs_bytes") = nb::bytes("", 0), nb::arg("device") = "host", nb::arg("deterministic") = false,
             nb::sig("def select(kind: OpKind | int, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec], "
                     "schema_id: int = 0, attrs_bytes: Buffer = b'', device: str = 'host', "
                     "deterministic: bool = False) -> Selection"),
             "Find the kernel that op_call would run, without memory. For \"cuda\" no device is needed: without one,\n"
             "compute capabilities are not looked at.\n\n"
             "Raises:\n"
             "    InvalidArgumentError: Counts or attributes are wrong, or there is no such device.\n"
             "    NotSupportedError: The op is not in this build.");
}

}  // namespace npu::bindings
