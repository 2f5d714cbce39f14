#include "bindings/arguments.h"
#include "bindings/bindings.h"
#include "core/registry.h"

namespace npu::bindings {
namespace {

const char* name_of_device(DeviceType type) { return type == DeviceType::Host ? "host" : "cuda"; }

nb::list in_place_of(const OpInfo& op) {
  nb::list pairs;  // (output, input) that may be the same tensor
  for (int output = 0; output < op.num_outputs; ++output) {
    for (int input = 0; input < op.max_inputs; ++input) {
      if (op.in_place[size_t(output)] & input_bit(input)) pairs.append(nb::make_tuple(output, input));
    }
  }
  return pairs;
}

nb::dict view_of(const OpInfo& op) {
  nb::dict view;
  view["name"] = op.name;
  view["kind"] = int(op.kind);
  view["inputs"] = nb::make_tuple(op.min_inputs, op.max_inputs);
  view["outputs"] = op.num_outputs;
  view["in_place"] = in_place_of(op);
  view["schema"] = op.schema ? nb::cast(op.schema->name) : nb::none();
  view["attrs_required"] = op.attrs_required;
  view["origin"] = text_object(op.origin);
  return view;
}

nb::dict view_of(const Kernel& kernel, const OpInfo& op) {
  const KernelTraits& traits = kernel.traits();
  nb::list flags;
  if (kernel.is(NPU_KERNEL_CAPTURE_SAFE)) flags.append("capture_safe");
  if (kernel.is(NPU_KERNEL_DETERMINISTIC)) flags.append("deterministic");
  nb::dict view;
  view["id"] = traits.id;
  view["op"] = op.name;
  view["device"] = name_of_device(traits.device);
  view["priority"] = traits.priority;
  view["flags"] = flags;
  view["origin"] = text_object(traits.origin);
  return view;
}

nb::dict view_of(const AttrSchema& schema) {
  nb::list fields;
  for (const AttrField& field : schema.fields) {
    const bool is_real = field.code == 'f' || field.code == 'd';
    const nb::object value = is_real ? nb::cast(field.default_value) : nb::cast(int64_t(field.default_value));
    fields.append(nb::make_tuple(field.name, std::string(1, field.code), value));
  }
  nb::dict view;
  view["id"] = schema.id;
  view["format"] = schema.format();
  view["bytes"] = schema.bytes;
  view["fields"] = fields;
  return view;
}

nb::dict kinds() {
  nb::dict all;
  for (const RegisteredOp& op : KernelRegistry::instance().snapshot().ops) all[nb::cast(op.info->name)] = int(op.info->kind);
  return all;
}

nb::list ops() {
  nb::list all;
  for (const RegisteredOp& op : KernelRegistry::instance().snapshot().ops) all.append(view_of(*op.info));
  return all;
}

nb::list kernels(nb::handle kind) {
  const bool all_kinds = kind.is_none();
  const OpKind wanted = all_kinds ? OpKind{} : kind_argument(kind, "kernels");
  nb::list all;
  for (const RegisteredOp& op : KernelRegistry::instance().snapshot().ops) {
    if (!all_kinds && op.info->kind != wanted) continue;
    for (const KernelPtr& kernel : op.host_kernels) all.append(view_of(*kernel, *op.info));
    for (const KernelPtr& kernel : op.cuda_kernels) all.append(view_of(*kernel, *op.info));
  }
  return all;
}

nb::dict attr_schemas() {
  nb::dict all;
  for (const RegisteredOp& op : KernelRegistry::instance().snapshot().ops) {
    if (op.info->schema) all[nb::cast(op.info->schema->name)] = view_of(*op.info->schema);
  }
  return all;
}

}  // namespace

void bind_registry_views(nb::module_& module) {
  module.def("kinds", &kinds, nb::sig("def kinds() -> dict[str, int]"), "The ops of this build, by name.");
  module.def("ops", &ops, nb::sig("def ops() -> list[dict[str, Any]]"),
             "What is known of each op: name, kind, inputs (the least and the most), outputs, in_place (pairs of an\n"
             "output and the input that it may be), schema (of its attributes, or None), attrs_required, origin.");
  module.def("kernels", &kernels, nb::arg("kind") = nb::none(),
             nb::sig("def kernels(kind: OpKind | int | None = None) -> list[dict[str, Any]]"),
             "The kernels of one op, or of all, in the order in which they are asked: id, op, device, priority,\n"
             "flags, origin.");
  module.def("attr_schemas", &attr_schemas, nb::sig("def attr_schemas() -> dict[str, dict[str, Any]]"),
             "How attributes are packed, by the name of their schema: id, format (of struct), bytes, and fields as\n"
             "tuples of name, code (of struct) and default.");
}

}  // namespace npu::bindings
