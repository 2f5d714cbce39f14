// The registry as Python sees it, and what Python adds to it: libraries of kernels, and ops.
#include <nanobind/stl/tuple.h>

#include <cstring>

#include "bindings/arguments.h"
#include "bindings/bindings.h"
#include "bindings/unlocked.h"
#include "core/library.h"

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
  view["max_outputs"] = std::max(op.num_outputs, op.max_outputs);
  view["lists"] = nb::make_tuple(op.input_lists, op.output_lists);
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
  view["is_open"] = schema.is_open;
  return view;
}

nb::dict kinds() {
  nb::dict all;
  const RegistryReader registry;
  for (const RegisteredOp& op : registry->ops) all[nb::cast(op.info->name)] = int(op.info->kind);
  return all;
}

nb::list ops() {
  nb::list all;
  const RegistryReader registry;
  for (const RegisteredOp& op : registry->ops) all.append(view_of(*op.info));
  return all;
}

nb::list kernels(nb::handle kind) {
  const bool all_kinds = kind.is_none();
  const OpKind wanted = all_kinds ? OpKind{} : kind_argument(kind, "kernels");
  nb::list all;
  const RegistryReader registry;
  for (const RegisteredOp& op : registry->ops) {
    if (!all_kinds && op.info->kind != wanted) continue;
    for (const KernelPtr& kernel : op.host_kernels) all.append(view_of(*kernel, *op.info));
    for (const KernelPtr& kernel : op.cuda_kernels) all.append(view_of(*kernel, *op.info));
  }
  return all;
}

nb::dict attr_schemas() {
  nb::dict all;
  const RegistryReader registry;
  for (const RegisteredOp& op : registry->ops) {
    if (op.info->schema) all[nb::cast(op.info->schema->name)] = view_of(*op.info->schema);
  }
  return all;
}

nb::list list_of(const std::vector<std::string>& texts) {
  nb::list list;
  for (const std::string& text : texts) list.append(nb::str(text.c_str()));
  return list;
}

nb::dict dict_of(const LibraryInfo& info) {
  nb::dict dict;
  dict["name"] = info.name.c_str();
  dict["path"] = nb::steal(PyUnicode_DecodeFSDefault(info.path.c_str()));
  dict["ops"] = list_of(info.ops);
  dict["kernels"] = list_of(info.kernels);
  return dict;
}

// A path as the file system has it, of a str or an os.PathLike.
std::string path_argument(nb::handle path) {
  PyObject* bytes = nullptr;
  if (!PyUnicode_FSConverter(path.ptr(), &bytes)) throw nb::python_error();
  const nb::bytes owned = nb::steal<nb::bytes>(bytes);
  return {owned.c_str(), owned.size()};
}

nb::dict load(nb::handle path) {
  const std::string text = path_argument(path);
  LibraryInfo info;
  // What the library does when it is loaded is its own affair.
  check(without_gil([&] { return load_library(text, &info); }));
  return dict_of(info);
}

nb::list libraries() {
  nb::list list;
  // A library that is being loaded may need the GIL.
  for (const LibraryInfo& info : without_gil(loaded_libraries)) list.append(dict_of(info));
  return list;
}

using Field = std::tuple<std::string, std::string, double>;  // name, letter of the struct module, default

// An op of Python takes the way of one of a C library: the same checks, the same errors.
Status add_op(const std::string& name, int min_inputs, int max_inputs, const std::vector<uint64_t>& in_place,
              const std::string& schema, const std::vector<Field>& fields, bool attrs_required,
              const std::string& origin, int32_t* kind) {
  std::vector<npu_attr_field> c_fields;
  npu_op op{};
  for (const auto& [field, code, standard] : fields) {
    c_fields.push_back({field.c_str(), standard, code.size() == 1 ? code[0] : '\0'});
    op.attr_bytes += code == "q" || code == "Q" || code == "d" ? 8 : 4;
  }
  if (in_place.size() > size_t(kMaxOutputs)) return Status::invalid("it has more than 8 outputs");
  op.min_inputs = min_inputs;
  op.max_inputs = max_inputs;
  op.num_outputs = static_cast<int32_t>(in_place.size());
  std::copy(in_place.begin(), in_place.end(), op.in_place);
  if (schema.size() == 4) std::memcpy(&op.schema_id, schema.data(), 4);
  op.attrs_required = attrs_required;
  op.num_attr_fields = static_cast<uint32_t>(c_fields.size());
  op.attr_fields = c_fields.data();
  OpInfo info;
  std::string checked;
  NPU_TRY(read_name(name.c_str(), "its name", &checked));
  NPU_TRY(read_op(op, checked, origin, &info));
  *kind = static_cast<int32_t>(info.kind);
  return KernelRegistry::instance().add({std::move(info)}, {});
}

}  // namespace

void bind_registry(nb::module_& module) {
  module.def("kinds", &kinds, nb::sig("def kinds() -> dict[str, int]"), "The ops of this build, by name.");
  module.def("ops", &ops, nb::sig("def ops() -> list[dict[str, Any]]"),
             "What is known of each op: name, kind, inputs (the least and the most), outputs, lists (how many inputs\n"
             "and outputs, from the last one back, are lists), in_place (pairs of an output and the input that it may\n"
             "be), schema (of its attributes, or None), attrs_required, origin.");
  module.def("kernels", &kernels, nb::arg("kind") = nb::none(),
             nb::sig("def kernels(kind: OpKind | int | None = None) -> list[dict[str, Any]]"),
             "The kernels of one op, or of all, in the order in which they are asked: id, op, device, priority,\n"
             "flags, origin.");
  module.def("attr_schemas", &attr_schemas, nb::sig("def attr_schemas() -> dict[str, dict[str, Any]]"),
             "How attributes are packed, by the name of their schema: id, format (of struct), bytes, and fields as\n"
             "tuples of name, code (of struct) and default.");
  module.def("load_library", &load, nb::arg("path"),
             nb::sig("def load_library(path: str | os.PathLike[str]) -> dict[str, Any]"),
             "Load a shared library of kernels: all it offers, or nothing. It stays loaded.\n\n"
             "Returns:\n"
             "    Its name, path, ops (their names) and kernels (their ids).\n\n"
             "Raises:\n"
             "    InvalidArgumentError: There is no such library, it is loaded already, or what it offers is wrong.\n"
             "    UnavailableError: It says that it cannot be used on this machine.");
  module.def("libraries", &libraries, nb::sig("def libraries() -> list[dict[str, Any]]"),
             "The libraries of kernels that are loaded, as load_library returned them.");
  module.def(
      "register_op",
      [](const std::string& name, int min_inputs, int max_inputs, const std::vector<uint64_t>& in_place,
         const std::string& schema, const std::vector<Field>& fields, bool attrs_required, const std::string& origin) {
        int32_t kind = 0;
        check(add_op(name, min_inputs, max_inputs, in_place, schema, fields, attrs_required, origin, &kind)
                  .at("the op " + name));
        return kind;
      },
      nb::arg("name"), nb::arg("min_inputs"), nb::arg("max_inputs"), nb::arg("in_place"), nb::arg("schema") = "",
      nb::arg("fields") = std::vector<Field>(), nb::arg("attrs_required") = false, nb::arg("origin") = "Python",
      nb::sig("def register_op(name: str, min_inputs: int, max_inputs: int, in_place: Sequence[int], schema: str = '', "
              "fields: Sequence[tuple[str, str, float]] = (), attrs_required: bool = False, origin: str = 'Python') "
              "-> int"),
      "Add an op and return its kind. `in_place` has for each output the inputs that it may be, as bits.");
}

}  // namespace npu::bindings
