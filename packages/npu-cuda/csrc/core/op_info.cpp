#include "core/op_info.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>

namespace npu {
namespace {

std::string name_of(bool is_output, int index) { return (is_output ? "output " : "input ") + std::to_string(index); }

std::string counts_text(const OpInfo& op) {
  const auto range = [](int low, int high) {
    return low >= high ? std::to_string(low) : std::to_string(low) + " to " + std::to_string(high);
  };
  const std::string inputs = range(op.min_inputs, op.max_inputs), outputs = range(op.num_outputs, op.max_outputs);
  std::string text =
      inputs + (inputs == "1" ? " input and " : " inputs and ") + outputs + (outputs == "1" ? " output" : " outputs");
  if (!op.has_lists()) return text;
  return text + ", of which the last " + std::to_string(op.input_lists + op.max_inputs - op.min_inputs) + " and " +
         std::to_string(op.output_lists) + " are lists of one length, given one after the other";
}

constexpr uint64_t kMostNeeded = 8;  // bytes of alignment: no item wants more

[[gnu::noinline]] Status check_alignment(const TensorDesc& tensor) {
  // Complex numbers are pairs, and need the alignment of one of them.
  const auto item = static_cast<uint64_t>(item_bytes(tensor.dtype) / (tensor.dtype.code == 5 ? 2 : 1));
  const uint64_t needed = std::clamp<uint64_t>(item & (~item + 1), 1, kMostNeeded);
  if ((reinterpret_cast<uintptr_t>(tensor.data) & (needed - 1)) == 0) return {};
  return Status::invalid("starts at an address that is no multiple of its item size, " + std::to_string(item) + " bytes");
}

inline Status check_tensor(const TensorDesc& tensor, bool pointers) {
  if (tensor.rank < 0 || tensor.rank > NPU_MAX_RANK) return no_such_rank(tensor.rank);
  if (!pointers || tensor.numel == 0) return {};
  if (tensor.data == nullptr) return Status::invalid("has no memory: its pointer is null");
  if (reinterpret_cast<uintptr_t>(tensor.data) % kMostNeeded == 0) [[likely]] return {};
  return check_alignment(tensor);
}

// Returns whether elements of a tensor that is not contiguous share memory.
bool overlaps_itself(const TensorDesc& tensor) {
  if (tensor.numel <= 1) return false;
  // Sorted by stride, each axis has to step over all that the ones before it span.
  int order[NPU_MAX_RANK] = {};
  int count = 0;
  for (int axis = 0; axis < tensor.rank; ++axis) {
    if (tensor.shape[axis] == 1) continue;
    int place = count++;
    for (; place > 0 && tensor.strides[order[place - 1]] > tensor.strides[axis]; --place) order[place] = order[place - 1];
    order[place] = axis;
  }
  int64_t span = 1;
  for (int i = 0; i < count; ++i) {
    if (tensor.strides[order[i]] < span) return true;
    span += tensor.strides[order[i]] * (tensor.shape[order[i]] - 1);
  }
  return false;
}

inline bool overlap(const TensorDesc& a, const TensorDesc& b) {
  const auto start = [](const TensorDesc& tensor) { return reinterpret_cast<uintptr_t>(tensor.data); };
  return a.numel != 0 && b.numel != 0 && start(a) < start(b) + uintptr_t(span_bytes(b)) &&
         start(b) < start(a) + uintptr_t(span_bytes(a));
}

// Checks an output and an input that overlap: Ok where the op lets them be one tensor.
Status check_in_place(const OpInfo& op, const OpCall& call, int output, int input) {
  const bool may_be = op.may_be_in_place(call.num_inputs, call.num_outputs, output, input);
  if (may_be && is_same_tensor(call.outputs[output], call.inputs[input])) return {};
  return Status::invalid(name_of(true, output) + " overlaps " + name_of(false, input) +
                         (may_be           ? ": it may be the same tensor, but not a part of it"
                          : op.has_lists() ? ": it is not at the same place of a list that is written in place"
                                           : ": this op does not work in place"));
}

[[gnu::cold]] Status shares_its_elements(const TensorDesc& output, int index) {
  return Status::invalid(name_of(true, index) + ", " + text_of(output) + ", may have elements that share memory");
}

[[gnu::cold]] Status overlapping_outputs(int i, int j) {
  return Status::invalid(name_of(true, i) + " overlaps " + name_of(true, j));
}

// Compares each tensor with those of smaller addresses that reach it: inputs with outputs alone, since one tensor may be
// many inputs.
Status find_overlaps_of_many(const OpInfo& op, const OpCall& call) {
  struct Range {
    uintptr_t begin, end;
    int index;
    bool is_output;
  };
  std::vector<Range> ranges;
  const auto add = [&](const TensorDesc& tensor, int index, bool is_output) {
    const auto begin = reinterpret_cast<uintptr_t>(tensor.data);
    if (tensor.numel > 0) ranges.push_back({begin, begin + uintptr_t(span_bytes(tensor)), index, is_output});
  };
  for (int i = 0; i < call.num_inputs; ++i) add(call.inputs[i], i, false);
  for (int i = 0; i < call.num_outputs; ++i) add(call.outputs[i], i, true);
  std::sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) { return a.begin < b.begin; });
  std::vector<Range> inputs, outputs;  // that may reach the next range
  for (const Range& range : ranges) {
    const auto has_ended = [&](const Range& other) { return other.end <= range.begin; };
    std::erase_if(outputs, has_ended);
    if (!range.is_output) {
      for (const Range& output : outputs) NPU_TRY(check_in_place(op, call, output.index, range.index));
      inputs.push_back(range);
      continue;
    }
    if (!outputs.empty()) return overlapping_outputs(range.index, outputs[0].index);
    std::erase_if(inputs, has_ended);
    for (const Range& input : inputs) NPU_TRY(check_in_place(op, call, range.index, input.index));
    outputs.push_back(range);
  }
  return {};
}

constexpr int kFew = 16;  // tensors, of which each is compared with each

Status find_overlaps(const OpInfo& op, const OpCall& call) {
  for (int i = 0; i < call.num_outputs; ++i) {
    const TensorDesc& output = call.outputs[i];
    if (!is_contiguous(output) && overlaps_itself(output)) return shares_its_elements(output, i);
    if (call.num_inputs + call.num_outputs > kFew) continue;
    for (int j = 0; j < call.num_inputs; ++j) {
      if (overlap(output, call.inputs[j])) NPU_TRY(check_in_place(op, call, i, j));
    }
    for (int j = 0; j < i; ++j) {
      if (overlap(output, call.outputs[j])) return overlapping_outputs(i, j);
    }
  }
  return call.num_inputs + call.num_outputs > kFew ? find_overlaps_of_many(op, call) : Status();
}

[[gnu::cold]] Status other_device() {
  return Status::invalid("is not on the device of the others: all tensors of a call are on one device");
}

inline Status check_device(const TensorDesc& tensor, const TensorDesc& first) {
  if (tensor.device_type == first.device_type && tensor.device_id == first.device_id) return {};
  return other_device();
}

[[gnu::cold]] Status other_counts(const OpInfo& op, const OpCall& call) {
  return Status::invalid(op.name + " takes " + counts_text(op) + ", not " + std::to_string(call.num_inputs) + " and " +
                         std::to_string(call.num_outputs));
}

// Whether the payload is all fields of the schema, or the first ones.
bool ends_at_a_field(const AttrSchema& schema, uint32_t bytes) {
  const auto ends_there = [&](const AttrField& field) { return end_of(field) == bytes; };
  return bytes == schema.bytes || (schema.is_open && bytes > schema.bytes) || std::any_of(schema.fields.begin(), schema.fields.end(), ends_there);
}

// Unless they are those of the op: schema 0 without bytes, or its schema with all or the first of its fields.
[[gnu::noinline]] Status check_given_attrs(const OpInfo& op, const AttrBlob& attrs) {
  const auto given = [&] {
    return "schema " + std::to_string(attrs.schema_id) + " with " + std::to_string(attrs.bytes) + " bytes";
  };
  if (attrs.bytes != 0 && attrs.data == nullptr) return Status::invalid("attributes: " + given() + " at null");
  if (attrs.schema_id == 0 && attrs.bytes == 0) {
    if (!op.attrs_required) return {};
    return Status::invalid(op.name + " has no default attributes: give schema " + op.schema->name + ", format '" +
                           op.schema->format() + "'");
  }
  if (!op.schema) return Status::invalid(op.name + " takes no attributes, not " + given());
  if (attrs.schema_id == op.schema->id && ends_at_a_field(*op.schema, attrs.bytes)) return {};
  return Status::invalid(op.name + " takes attributes of schema " + op.schema->name + " (" +
                         std::to_string(op.schema->id) + "), " + std::to_string(op.schema->bytes) + " bytes" +
                         (op.schema->fields.empty() ? "" : ", format '" + op.schema->format() + "'") + ", not " + given());
}

}  // namespace

int OpInfo::list_length(int call_inputs, int call_outputs) const {
  const int in = call_inputs - (min_inputs - input_lists), out = call_outputs - (num_outputs - output_lists);
  const int length = output_lists > 0 ? out / output_lists : in / input_lists;
  if (in < 0 || length < 1 || out != length * output_lists || in % length != 0) return 0;
  const int lists = in / length;
  return lists >= input_lists && lists <= input_lists + max_inputs - min_inputs ? length : 0;
}

bool OpInfo::may_be_in_place(int call_inputs, int call_outputs, int output, int input) const {
  if (!has_lists()) return in_place[size_t(output)] & input_bit(input);
  const int length = list_length(call_inputs, call_outputs);
  const auto place = [&](int tensor, int singles) { return tensor < singles ? -1 : (tensor - singles) % length; };
  const auto number = [&](int tensor, int singles) { return tensor < singles ? tensor : singles + (tensor - singles) / length; };
  const int in = min_inputs - input_lists, out = num_outputs - output_lists;
  return place(output, out) == place(input, in) && (in_place[size_t(number(output, out))] & input_bit(number(input, in)));
}

Status no_such_rank(int rank) {
  return Status::invalid("has rank " + std::to_string(rank) + "; 0 to " + std::to_string(NPU_MAX_RANK) + " are possible");
}

std::string AttrSchema::format() const {
  std::string text = "<";
  for (const AttrField& field : fields) text += field.code;
  return text;
}

Status check_call(const OpInfo& op, const OpCall& call, bool pointers) {
  if (op.has_lists()) {
    if (op.list_length(call.num_inputs, call.num_outputs) == 0) return other_counts(op, call);
  } else if (call.num_inputs < op.min_inputs || call.num_inputs > op.max_inputs || call.num_outputs < op.num_outputs ||
             call.num_outputs > std::max(op.num_outputs, op.max_outputs)) {
    return other_counts(op, call);
  }
  const bool has_default_attrs = call.attrs.schema_id == 0 && call.attrs.bytes == 0 && !op.attrs_required;
  if (!has_default_attrs) NPU_TRY(check_given_attrs(op, call.attrs));
  const TensorDesc& first = call.outputs[0];
  const auto check = [&](const TensorDesc& tensor) {
    NPU_TRY(check_tensor(tensor, pointers));
    return check_device(tensor, first);
  };
  const auto place = [&](bool is_output, int i) { return [&, is_output, i] { return op.name + ": " + name_of(is_output, i); }; };
  for (int i = 0; i < call.num_inputs; ++i) NPU_TRY(check(call.inputs[i]).at(place(false, i)));
  for (int i = 0; i < call.num_outputs; ++i) NPU_TRY(check(call.outputs[i]).at(place(true, i)));
  return pointers ? check_overlaps(op, call) : Status();
}

Status check_overlaps(const OpInfo& op, const OpCall& call) {
  return find_overlaps(op, call).at([&] { return op.name; });
}

std::string text_of(const OpCall& call) {
  std::string text = "(";
  for (int i = 0; i < call.num_inputs; ++i) text += (i ? ", " : "") + text_of(call.inputs[i]);
  text += ") -> ";
  for (int i = 0; i < call.num_outputs; ++i) text += (i ? ", " : "") + text_of(call.outputs[i]);
  return text;
}

}  // namespace npu
