// The ops and kernels of a shared library as those of this code base.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>

#include "core/library.h"
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

constexpr uint32_t kKnownFlags = NPU_KERNEL_CAPTURE_SAFE | NPU_KERNEL_DETERMINISTIC;

// The functions of a library behind the interface of Kernel.
class CKernel final : public Kernel {
 public:
  CKernel(KernelTraits traits, const npu_kernel& functions) : Kernel(std::move(traits)), functions_(functions) {}

  Status supported(const OpCall& call) const override {
    return ask("supported", [&](npu_error* error) { return functions_.supported(&call, error); });
  }

  Status launch(const OpCall& call) const override {
    return ask("launch", [&](npu_error* error) { return functions_.launch(&call, error); });
  }

  uint64_t workspace_bytes(const OpCall& call) const override {
    return functions_.workspace_bytes ? functions_.workspace_bytes(&call) : 0;
  }

  Status prepare(const OpCall& call, void** state) const override {
    *state = nullptr;
    if (!functions_.prepare) return {};
    Status status = ask("prepare", [&](npu_error* error) { return functions_.prepare(&call, state, error); });
    if (!status.ok()) *state = nullptr;  // what failed made nothing
    return status;
  }

  void release(void* state) const noexcept override {
    if (functions_.release && state) functions_.release(state);
  }

  Cost cost(const OpCall& call) const override {
    return functions_.cost ? functions_.cost(&call) : Kernel::cost(call);
  }

 private:
  template <class Function>
  Status ask(const char* name, Function function) const {
    npu_error error;
    error.text[0] = '\0';
    const int32_t code = function(&error);
    if (code == NPU_OK) [[likely]] return {};
    error.text[sizeof(error.text) - 1] = '\0';
    const std::string who = std::string(name) + " of " + traits().id;
    if (code < 0 || code > NPU_UNAVAILABLE) {
      const std::string text = error.text[0] ? std::string("; it says: ") + error.text : "";
      return Status::internal(who + " returned the status " + std::to_string(code) + ", which there is not" + text);
    }
    return {static_cast<StatusCode>(code), error.text[0] ? error.text : who + " does not say why"};
  }

  npu_kernel functions_;
};

std::string hexadecimal(uint32_t number) {
  char text[16];
  std::snprintf(text, sizeof text, "0x%x", static_cast<unsigned>(number));
  return text;
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
  if (op.input_lists < 0 || op.input_lists > op.min_inputs || op.output_lists < 0 || op.output_lists > op.num_outputs) {
    return Status::invalid("its input_lists or output_lists are more than its inputs or outputs");
  }
  if (op.input_lists > 0 && op.output_lists == 0 && op.min_inputs != op.max_inputs) {
    return Status::invalid("without a list as output it has a fixed number of inputs: they determine the length of the lists");
  }
  out->kind = KernelRegistry::new_kind();
  out->name = std::move(name);
  out->min_inputs = op.min_inputs;
  out->max_inputs = op.max_inputs;
  out->num_outputs = op.num_outputs;
  out->input_lists = op.input_lists;
  out->output_lists = op.output_lists;
  std::copy(std::begin(op.in_place), std::end(op.in_place), out->in_place.begin());
  out->attrs_required = op.attrs_required != 0;
  out->origin = std::move(origin);
  return read_schema(op, out);
}

Status read_kernel(const npu_kernel& kernel, std::string id, OpKind kind, std::string origin, KernelPtr* out) {
  if (!kernel.supported) return Status::invalid("its function supported is NULL");
  if (!kernel.launch) return Status::invalid("its function launch is NULL");
  if (!kernel.prepare && kernel.release) return Status::invalid("it has release, and no prepare that makes a state");
  if (kernel.device_type != NPU_CPU && kernel.device_type != NPU_CUDA) {
    return Status::invalid("its device_type is " + std::to_string(kernel.device_type) +
                           "; NPU_CPU (1) and NPU_CUDA (2) are known");
  }
  if (kernel.flags & ~kKnownFlags) {
    return Status::invalid("its flags are " + hexadecimal(kernel.flags) + "; " + hexadecimal(kKnownFlags) +
                           " are known");
  }
  const int32_t low = kernel.min_compute_capability, high = kernel.max_compute_capability;
  if (low < 0 || high < 0 || (high != 0 && low > high)) {
    return Status::invalid("it is for compute capability " + std::to_string(low) + " to " + std::to_string(high));
  }
  KernelTraits traits{kind, std::move(id), static_cast<DeviceType>(kernel.device_type), kernel.priority,
                      kernel.flags, low, high, std::move(origin)};
  *out = std::make_shared<CKernel>(std::move(traits), kernel);
  return {};
}

}  // namespace npu
