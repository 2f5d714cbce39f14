// Program: slots and ops.
#include <algorithm>

#include "core/graph.h"
#include "core/op_info.h"
#include "core/program.h"

namespace npu {

Program::Program(Device* device, SelectionRules rules) : device_(device), rules_(rules) {}
Program::~Program() = default;

std::string Program::name_of_slot(int slot) const {
  const std::string& name = slots_[slot].name;
  return "slot " + std::to_string(slot) + (name.empty() ? "" : " ('" + name + "')");
}

std::string Program::name_of_op(size_t index) const {
  const Op& op = ops_[index];
  const std::string by = op.kernel ? " by " + op.kernel->traits().id : "";
  return "op " + std::to_string(index) + " (" + op.info->name + by + ")";
}

Status Program::begin(const Exclusive& exclusive, const char* action, bool is_final) const {
  if (!exclusive.is_held()) {
    return Status::invalid(std::string(action) + ": this program is in use, by another thread or by a call from " +
                           "within: it does one thing at a time; make one per thread");
  }
  if (is_final && !is_final_) {
    return Status::invalid(std::string(action) + ": this program is not final: call finalize() first");
  }
  if (is_final || !is_final_) return {};
  return Status::invalid(std::string(action) + ": this program is final; make another one");
}

Status Program::add_slot(TensorDesc desc, bool is_external, std::string name, int* slot) {
  const Exclusive exclusive(&is_running_);
  NPU_TRY(begin(exclusive, "add_slot", false));
  *slot = static_cast<int>(slots_.size());
  desc.data = nullptr;
  desc.device_type = static_cast<int32_t>(device_->type());
  desc.device_id = device_->id();
  if (!is_external) desc.alignment = kArenaAlignment;
  slots_.push_back({desc, is_external, std::move(name)});
  uses_.emplace_back();
  return {};
}

Status Program::check_slot_number(int slot) const {
  if (slot >= 0 && slot < static_cast<int>(slots_.size())) return {};
  return Status::invalid("there is no slot " + std::to_string(slot) + ": the program has " +
                         std::to_string(slots_.size()));
}

Status Program::check_view(int base, const TensorDesc& desc, uint64_t offset) const {
  const auto bytes = static_cast<uint64_t>(span_bytes(slots_[base].desc));
  const auto span = static_cast<uint64_t>(span_bytes(desc));
  if (offset > bytes || span > bytes - offset) {
    return Status::invalid(text_of(desc) + " from byte " + std::to_string(offset) + " on has " + std::to_string(span) +
                           " bytes, " + name_of_slot(base) + " has " + std::to_string(bytes) +
                           ": a view resides in its base");
  }
  const auto item = static_cast<uint64_t>(item_bytes(desc.dtype));
  if (item == 0 || offset % item == 0) return {};
  return Status::invalid("it begins at byte " + std::to_string(offset) + " of " + name_of_slot(base) +
                         ", which is not a multiple of its item size, " + std::to_string(item));
}

Status Program::add_view(int base, TensorDesc desc, uint64_t offset, std::string name, int* slot) {
  const Exclusive exclusive(&is_running_);
  NPU_TRY(begin(exclusive, "add_view", false));
  NPU_TRY(check_slot_number(base));
  NPU_TRY(check_view(base, desc, offset).at("a view of " + name_of_slot(base)));
  const int root = root_of(base);
  offset += slots_[base].base_offset;
  const Slot& owner = slots_[root];
  desc.data = nullptr;
  desc.device_type = owner.desc.device_type;
  desc.device_id = owner.desc.device_id;
  desc.alignment = owner.desc.alignment;
  while (offset % desc.alignment != 0) desc.alignment /= 2;
  *slot = static_cast<int>(slots_.size());
  slots_.push_back({.desc = desc, .is_external = false, .name = std::move(name), .base = root, .base_offset = offset});
  slots_[root].views.push_back(*slot);
  uses_.emplace_back();
  return {};
}

Status Program::find_op(OpKind kind, const std::string& kernel_id, Op* op) const {
  const RegistryReader registry;
  if (!kernel_id.empty()) {
    op->kernel = registry->find_kernel(kernel_id);
    op->is_pinned = true;
    if (!op->kernel) {
      return Status::invalid("there is no kernel '" + kernel_id + "'; npu_cuda.kernels() lists them");
    }
    if (op->kernel->traits().device != device_->type()) {
      return Status::invalid("the kernel '" + kernel_id + "' does not run on " + device_->name());
    }
    kind = op->kernel->traits().kind;
  }
  op->info = registry->find_op(kind);
  if (op->info) return {};
  return Status::not_implemented("op kind " + std::to_string(static_cast<int32_t>(kind)) +
                                 " is not in this build; npu_cuda.kinds() lists those that are");
}

// What can be said of memory without addresses: who wrote it, and whether an output shares it with other tensors.
Status Program::check_slots(const Op& op) const {
  for (size_t i = 0; i < op.inputs.size(); ++i) {
    const Slot& owner = slots_[root_of(op.inputs[i])];
    if (owner.is_external || owner.is_written) continue;
    return Status::invalid("input " + std::to_string(i) + " is " + name_of_slot(op.inputs[i]) +
                           ", a temporary that no op before this one writes: add that op first, or make the slot "
                           "external");
  }
  for (size_t i = 0; i < op.outputs.size(); ++i) {
    const Status status = check_output(op, i);
    if (!status.ok()) {
      const std::string place = "output " + std::to_string(i) + " is " + name_of_slot(op.outputs[i]);
      return Status(status.code(), place + status.message());
    }
  }
  return {};
}

Status Program::check_output(const Op& op, size_t output) const {
  const int slot = op.outputs[output];
  for (size_t j = 0; j < op.inputs.size(); ++j) {
    if (!share_bytes(slot, op.inputs[j])) continue;
    const std::string input = "input " + std::to_string(j);
    if (!are_same(slot, op.inputs[j])) return Status::invalid(", which shares memory with " + input);
    if (op.info->may_be_in_place(op.call.num_inputs, op.call.num_outputs, static_cast<int>(output), static_cast<int>(j))) {
      continue;
    }
    return Status::invalid(", which is " + input + ", too: this op does not work in place");
  }
  for (size_t j = 0; j < output; ++j) {
    if (are_same(slot, op.outputs[j])) return Status::invalid(", which is another output, too");
    if (share_bytes(slot, op.outputs[j])) return Status::invalid(", which shares memory with another output");
  }
  return covers_base(slot) ? Status() : check_rest_is_written(slot);
}

// Whoever reads a temporary must not find memory that nobody wrote.
Status Program::check_rest_is_written(int slot) const {
  const Slot& owner = slots_[slots_[slot].base];
  if (owner.is_external || owner.is_written) return {};
  return Status::invalid(", a part of " + name_of_slot(slots_[slot].base) +
                         ", a temporary that no op before this one writes: write all of it first, or make it external");
}

bool Program::covers_base(int slot) const {
  const Slot& view = slots_[slot];
  return !view.is_view() || (view.base_offset == 0 && nbytes(view.desc) == span_bytes(slots_[view.base].desc));
}

bool Program::are_same(int a, int b) const {
  return a == b || (root_of(a) == root_of(b) && slots_[a].base_offset == slots_[b].base_offset &&
                    is_same_tensor(slots_[a].desc, slots_[b].desc));
}

// Whether the bytes that two slots span have some in common.
bool Program::share_bytes(int a, int b) const {
  if (a == b) return true;
  if (root_of(a) != root_of(b)) return false;
  const auto begin = [&](int slot) { return slots_[slot].base_offset; };
  const auto end = [&](int slot) { return begin(slot) + static_cast<uint64_t>(span_bytes(slots_[slot].desc)); };
  return begin(a) < end(b) && begin(b) < end(a);
}

// Takes the descriptions of the slots, and lets the call point to them.
Status Program::take_slots(AttrBlob attrs, Op* op) const {
  for (const std::vector<int>* list : {&op->inputs, &op->outputs}) {
    for (const int slot : *list) {
      NPU_TRY(check_slot_number(slot));
      op->tensors.push_back(slots_[slot].desc);
    }
  }
  const auto* bytes = static_cast<const char*>(attrs.data);
  if (attrs.bytes > 0) op->attrs.assign(bytes, bytes + attrs.bytes);
  op->call.struct_size = sizeof(OpCall);
  op->call.num_inputs = static_cast<int32_t>(op->inputs.size());
  op->call.num_outputs = static_cast<int32_t>(op->outputs.size());
  op->call.compute_capability = device_->compute_capability();
  op->call.inputs = op->tensors.data();
  op->call.outputs = op->tensors.data() + op->inputs.size();
  op->call.attrs = {attrs.schema_id, attrs.bytes, op->attrs.data()};
  return {};
}

Status Program::add_op(OpKind kind, const std::string& kernel_id, std::vector<int> inputs,
                       std::vector<int> outputs, AttrBlob attrs, int* index) {
  const Exclusive exclusive(&is_running_);
  NPU_TRY(begin(exclusive, "add_op", false));
  const int number = static_cast<int>(ops_.size());
  const std::string place = "op " + std::to_string(number);
  Op op;
  NPU_TRY(find_op(kind, kernel_id, &op).at(place));
  const std::string place_of_op = place + " (" + op.info->name + ")";
  op.inputs = std::move(inputs);
  op.outputs = std::move(outputs);
  NPU_TRY(take_slots(attrs, &op).at(place_of_op));
  NPU_TRY(check_call(*op.info, op.call, false).at(place));
  NPU_TRY(check_slots(op).at(place_of_op));
  use_slots(number, op);
  ops_.push_back(std::move(op));
  return *index = number, Status();
}

void Program::use_slots(int index, const Op& op) {
  int position = 0;
  for (const int slot : op.inputs) use_slot(slot, {index, position++});
  for (const int slot : op.outputs) {
    use_slot(slot, {index, position++});
    slots_[slot].is_written = slots_[root_of(slot)].is_written = true;
  }
}

void Program::use_slot(int slot, SlotUse use) {
  uses_[slot].push_back(use);
  Slot& owner = slots_[root_of(slot)];
  if (owner.is_external && !owner.is_used()) ++num_unbound_;
  for (Slot* used : {&slots_[slot], &owner}) {
    if (!used->is_used()) used->first_op = use.op;
    used->last_op = use.op;
  }
}

}  // namespace npu
