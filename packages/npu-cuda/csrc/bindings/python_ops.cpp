#include <nanobind/stl/tuple.h>

#include <cstring>

#include "bindings/bindings.h"
#include "bindings/kernels.h"
#include "core/c_kernel.h"
#include "core/registry.h"

namespace npu::bindings {
namespace {

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

template <class Number>
nb::object number_at(const char* place, Number standard) {
  if (place) std::memcpy(&standard, place, sizeof standard);
  return nb::cast(standard);
}

nb::object value_of(const AttrField& field, const char* data) {
  const char* place = data ? data + field.offset : nullptr;
  switch (field.code) {
    case 'i': return number_at(place, static_cast<int32_t>(field.default_value));
    case 'I': return number_at(place, static_cast<uint32_t>(field.default_value));
    case 'q': return number_at(place, static_cast<int64_t>(field.default_value));
    case 'Q': return number_at(place, static_cast<uint64_t>(field.default_value));
    case 'f': return number_at(place, static_cast<float>(field.default_value));
    default: return number_at(place, field.default_value);
  }
}

}  // namespace

nb::dict decode_attrs(const OpInfo& op, const AttrBlob& attrs) {
  nb::dict values;
  if (!op.schema) return values;
  const auto* data = static_cast<const char*>(attrs.bytes ? attrs.data : nullptr);
  for (const AttrField& field : op.schema->fields) values[field.name.c_str()] = value_of(field, data);
  return values;
}

void bind_python_ops(nb::module_& module) {
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
