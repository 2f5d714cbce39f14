#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>

#include "core/c_kernel.h"
#include "core/registry.h"

namespace npu {
namespace {

constexpr uint32_t kMaxAttrBytes = 4096;

bool is_graphic(char letter) { return letter > ' ' && letter <= '~'; }

// Bytes of an attribute by its letter; 0 for one that is not known.
uint32_t size_of(char code) {
  const bool is_four = code == 'i' || code == 'I' || code == 'f';
  const bool is_eight = code == 'q' || code == 'Q' || code == 'd';
  return is_four ? 4 : is_eight ? 8 : 0;
}

// Whether the code has this number: an integer in its range, or any that a float has.
bool fits(char code, double value) {
  const bool is_whole = value == std::trunc(value);  // not NaN
  switch (code) {
    case 'i': return is_whole && value >= -0x1p31 && value < 0x1p31;
    case 'I': return is_whole && value >= 0 && value < 0x1p32;
    case 'q': return is_whole && value >= -0x1p63 && value < 0x1p63;
    case 'Q': return is_whole && value >= 0 && value < 0x1p64;
    case 'f': return !std::isfinite(value) || std::abs(value) <= double(std::numeric_limits<float>::max());
    default: return true;
  }
}

Status check_field(const npu_attr_field& field, const std::string& name, const std::vector<AttrField>& others) {
  if (size_of(field.code) == 0) {
    return Status::invalid("the code of the attribute " + name + " is character " + std::to_string(field.code) +
                           ", none of i I q Q f d");
  }
  if (std::any_of(others.begin(), others.end(), [&](const AttrField& other) { return other.name == name; })) {
    return Status::invalid("it has two attributes called " + name);
  }
  if (fits(field.code, field.default_value)) return {};
  char number[32];
  std::snprintf(number, sizeof number, "%.17g", field.default_value);
  return Status::invalid("the default of the attribute " + name + ", " + number + ", is no number of the code " +
                         field.code);
}

Status read_fields(const npu_op& op, AttrSchema* schema) {
  if (op.num_attr_fields == 0) return {};
  if (!op.attr_fields) return Status::invalid("its attr_fields are NULL");
  if (op.num_attr_fields > op.attr_bytes) return Status::invalid("it has more attr_fields than bytes of them");
  uint32_t bytes = 0;
  for (uint32_t i = 0; i < op.num_attr_fields; ++i) {
    const npu_attr_field& field = op.attr_fields[i];
    std::string name;
    NPU_TRY(read_name(field.name, "the name of attribute " + std::to_string(i), &name));
    NPU_TRY(check_field(field, name, schema->fields));
    schema->fields.push_back({name, field.code, bytes, field.default_value});
    bytes += size_of(field.code);
  }
  if (bytes == op.attr_bytes) return {};
  return Status::invalid("its attr_fields have " + std::to_string(bytes) + " bytes, attr_bytes says " +
                         std::to_string(op.attr_bytes) + ": they lie without padding");
}

Status read_schema(const npu_op& op, OpInfo* out) {
  if (op.schema_id == 0) {
    if (op.attr_bytes == 0 && op.num_attr_fields == 0 && !op.attrs_required) return {};
    return Status::invalid("it has attributes, and no schema_id: use NPU_FOURCC");
  }
  char letters[5] = {};
  std::memcpy(letters, &op.schema_id, 4);
  if (!std::all_of(letters, letters + 4, is_graphic)) {
    return Status::invalid("its schema_id " + std::to_string(op.schema_id) + " is not of four letters: use NPU_FOURCC");
  }
  if (op.attr_bytes == 0 || op.attr_bytes > kMaxAttrBytes) {
    return Status::invalid("its attr_bytes are " + std::to_string(op.attr_bytes) + "; 1 to " +
                           std::to_string(kMaxAttrBytes) + " are possible");
  }
  AttrSchema schema{op.schema_id, letters, op.attr_bytes, {}};
  NPU_TRY(read_fields(op, &schema));
  out->schema = std::move(schema);
  return {};
}

}  // namespace

Status read_name(const char* text, const std::string& what, std::string* out) {
  if (!text) return Status::invalid(what + " is NULL");
  const size_t length = strnlen(text, 256);
  if (length == 0) return Status::invalid(what + " is empty");
  if (length == 256) return Status::invalid(what + " has more than 255 characters");
  if (!std::all_of(text, text + length, is_graphic)) {
    return Status::invalid(what + " has characters other than printable ASCII without spaces");
  }
  out->assign(text, length);
  return {};
}

Status read_op(const npu_op& op, std::string name, std::string origin, OpInfo* out) {
  for (int output = 0; output < kMaxOutputs; ++output) {
    const uint64_t beyond = op.max_inputs >= 64 ? 0 : op.in_place[output] >> std::max(0, op.max_inputs);
    if (beyond || (output >= op.num_outputs && op.in_place[output])) {
      return Status::invalid("its in_place of output " + std::to_string(output) + " names what there is not");
    }
  }
  out->kind = KernelRegistry::new_kind();
  out->name = std::move(name);
  out->min_inputs = op.min_inputs;
  out->max_inputs = op.max_inputs;
  out->num_outputs = op.num_outputs;
  std::copy(std::begin(op.in_place), std::end(op.in_place), out->in_place.begin());
  out->attrs_required = op.attrs_required != 0;
  out->origin = std::move(origin);
  return read_schema(op, out);
}

}  // namespace npu
