// TensorSpec, which describes a tensor without memory, and select, which needs no more.
#include "bindings/bindings.h"
#include "bindings/tensors.h"
#include "core/dispatch.h"
#include "core/eager_workspace.h"
#include "core/op_info.h"

namespace npu::bindings {
namespace {

constexpr DType kDTypes[] = {
    {6, 8, 1},   {1, 8, 1},   {1, 16, 1}, {1, 32, 1}, {1, 64, 1},  {0, 8, 1},   {0, 16, 1},
    {0, 32, 1},  {0, 64, 1},  {2, 16, 1}, {4, 16, 1}, {2, 32, 1},  {2, 64, 1},  {5, 32, 1},
    {5, 64, 1},  {5, 128, 1}, {10, 8, 1}, {11, 8, 1}, {12, 8, 1},  {13, 8, 1},  {14, 8, 1},
};

TensorSpec make_spec(nb::handle dtype, nb::handle shape, nb::handle strides, nb::handle alignment) {
  TensorSpec spec{desc_argument(dtype, shape, strides, "TensorSpec")};
  const int64_t item = item_bytes(spec.desc.dtype);
  const int64_t given = int_argument(alignment, {"TensorSpec", "alignment"}, 0, 256);
  if (given & (given - 1)) {
    raise(Status::invalid("TensorSpec: alignment is " + std::to_string(given) + ", which is no power of two"));
  }
  spec.desc.alignment = uint32_t(given ? given : item);
  return spec;
}

std::string repr_of(const TensorSpec& spec) {
  return "TensorSpec(" + text_of(spec.desc) + ", alignment=" + std::to_string(spec.desc.alignment) + ")";
}

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
    raise_other_type({"select", name}, "a list or tuple of TensorSpec", list);
  }
  std::vector<TensorDesc> descs;
  for (nb::handle item : list) {
    if (!nb::isinstance<TensorSpec>(item)) {
      raise_other_type({"select", name, int(descs.size())}, "a TensorSpec", item);
    }
    descs.push_back(on_device(nb::cast<const TensorSpec&>(item), target.type, target.id));
  }
  return descs;
}

// A selection with what the kernel costs in this call.
struct PricedSelection : Selection {
  Cost cost{0, 0};
};

PricedSelection select_kernel(nb::handle kind, nb::handle inputs, nb::handle outputs, nb::handle schema_id,
                        nb::handle attrs_bytes, nb::handle device, bool deterministic) {
  const Target target = target_argument(device);
  const std::vector<TensorDesc> read = specs_argument(inputs, "inputs", target);
  const std::vector<TensorDesc> written = specs_argument(outputs, "outputs", target);
  const AttrsArgument attrs(schema_id, attrs_bytes, "select");
  const OpKind op = kind_argument(kind, "select");
  const OpInfo* info = RegistryReader()->find_op(op);
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
  PricedSelection selection{select(*info, call, target.type, {deterministic, kWorkspaceLimit})};
  if (selection.kernel) selection.cost = selection.kernel->cost(call);
  return selection;
}

nb::list refusals_of(const PricedSelection& selection) {
  nb::list all;
  for (const Refusal& refusal : selection.refusals) all.append(nb::make_tuple(refusal.kernel_id, text_object(refusal.reason)));
  return all;
}

}  // namespace

DType dtype_argument(nb::handle name, const char* function) {
  const std::string wanted = text_argument(name, {function, "dtype"});
  std::string known;
  for (const DType dtype : kDTypes) {
    if (name_of(dtype) == wanted) return dtype;
    known += (known.empty() ? "" : ", ") + name_of(dtype);
  }
  raise(Status::invalid(std::string(function) + ": dtype is '" + wanted + "'; possible are " + known));
}

TensorDesc desc_argument(nb::handle dtype, nb::handle shape, nb::handle strides, const char* function) {
  TensorDesc desc{};
  desc.dtype = dtype_argument(dtype, function);
  desc.device_type = NPU_CPU;
  const std::vector<int64_t> sizes = ints_argument(shape, {function, "shape"}, 0);
  if (sizes.size() > NPU_MAX_RANK) {
    raise(Status::invalid(std::string(function) + ": shape has rank " + std::to_string(sizes.size()) + "; 0 to " +
                          std::to_string(NPU_MAX_RANK) + " are possible"));
  }
  desc.rank = int32_t(sizes.size());
  std::copy(sizes.begin(), sizes.end(), desc.shape);
  std::vector<int64_t> steps;
  if (!strides.is_none()) {
    steps = ints_argument(strides, {function, "strides"}, 0);
    if (steps.size() != sizes.size()) {
      raise(Status::invalid(std::string(function) + ": strides has " + std::to_string(steps.size()) +
                            " entries, shape has " + std::to_string(sizes.size())));
    }
  }
  check(complete(&desc, strides.is_none() ? nullptr : steps.data()).at(std::string(function) + ": the tensor"));
  return desc;
}

TensorDesc on_device(const TensorSpec& spec, DeviceType type, int id) {
  TensorDesc desc = spec.desc;
  desc.device_type = int32_t(type);
  desc.device_id = id;
  return desc;
}

nb::tuple tuple_of(const int64_t* numbers, int count) {
  nb::list list;
  for (int i = 0; i < count; ++i) list.append(numbers[i]);
  return nb::tuple(list);
}

void bind_specs(nb::module_& module) {
  nb::class_<TensorSpec>(module, "TensorSpec",
                         "What a tensor will look like: dtype, shape, strides and alignment, without memory.")
      .def("__init__",
           [](TensorSpec* self, nb::handle dtype, nb::handle shape, nb::handle strides, nb::handle alignment) {
             new (self) TensorSpec(make_spec(dtype, shape, strides, alignment));
           },
           nb::arg("dtype"), nb::arg("shape"), nb::arg("strides") = nb::none(), nb::arg("alignment") = 0,
           nb::sig("def __init__(self, dtype: str, shape: Sequence[int], strides: Sequence[int] | None = None, "
                   "alignment: int = 0) -> None"),
           "Describe a tensor.\n\n"
           "Args:\n"
           "    dtype: A name as PyTorch has it: \"float32\", \"bfloat16\", \"int64\", \"bool\".\n"
           "    shape: At most 8 sizes.\n"
           "    strides: In elements, not negative; None stands for contiguous.\n"
           "    alignment: What is promised of the address, in bytes, a power of two up to 256; 0 stands for the\n"
           "        size of an element.\n\n"
           "Raises:\n"
           "    InvalidArgumentError: There is no such dtype, rank, size, stride or alignment.")
      .def_prop_ro("dtype", [](const TensorSpec& self) { return name_of(self.desc.dtype); })
      .def_prop_ro("shape", [](const TensorSpec& self) { return tuple_of(self.desc.shape, self.desc.rank); },
                   nb::sig("def shape(self) -> tuple[int, ...]"))
      .def_prop_ro("strides", [](const TensorSpec& self) { return tuple_of(self.desc.strides, self.desc.rank); },
                   nb::sig("def strides(self) -> tuple[int, ...]"))
      .def_prop_ro("alignment", [](const TensorSpec& self) { return self.desc.alignment; })
      .def("__repr__", &repr_of);
  nb::class_<PricedSelection>(module, "Selection", "Which kernel takes a call, and why the ones asked before it do not.")
      .def_prop_ro("kernel_id",
                   [](const PricedSelection& self) {
                     return self.kernel ? nb::cast(self.kernel->traits().id) : nb::object(nb::none());
                   },
                   nb::sig("def kernel_id(self) -> str | None"), "None: no kernel takes the call.")
      .def_prop_ro("workspace_bytes", [](const PricedSelection& self) { return self.kernel ? self.workspace_bytes : 0; },
                   "What the kernel needs besides the tensors.")
      .def_prop_ro("flops", [](const PricedSelection& self) { return self.cost.flops; },
                   "The floating-point operations of the kernel; 0 without one.")
      .def_prop_ro("refusals", &refusals_of, nb::sig("def refusals(self) -> list[tuple[str, str]]"),
                   "Kernel ids and reasons, in the order in which the kernels were asked.")
      .def("__repr__", [](const PricedSelection& self) {
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
