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

// What can be said of memory without addresses: who wrote it, and whether a slot is input and output of one op.
Status Program::check_slots(const Op& op) const {
  for (size_t i = 0; i < op.inputs.size(); ++i) {
    const Slot& slot = slots_[op.inputs[i]];
    if (slot.is_external || slot.is_written) continue;
    return Status::invalid("input " + std::to_string(i) + " is " + name_of_slot(op.inputs[i]) +
                           ", a temporary that no op before this one writes: add that op first, or make the slot "
                           "external");
  }
  for (size_t i = 0; i < op.outputs.size(); ++i) {
    const std::string place = "output " + std::to_string(i) + " is " + name_of_slot(op.outputs[i]);
    for (size_t j = 0; j < op.inputs.size(); ++j) {
      if (op.outputs[i] != op.inputs[j] || op.info->in_place[i] & input_bit(static_cast<int>(j))) continue;
      return Status::invalid(place + ", which is input " + std::to_string(j) +
                             ", too: this op does not work in place");
    }
    if (std::count(op.outputs.begin(), op.outputs.begin() + static_cast<std::ptrdiff_t>(i), op.outputs[i]) > 0) {
      return Status::invalid(place + ", which is another output, too");
    }
  }
  return {};
}

// Takes the descriptions of the slots, and lets the call point to them.
Status Program::take_slots(AttrBlob attrs, Op* op) const {
  for (const std::vector<int>* list : {&op->inputs, &op->outputs}) {
    for (const int slot : *list) {
      if (slot < 0 || slot >= static_cast<int>(slots_.size())) {
        return Status::invalid("there is no slot " + std::to_string(slot) + ": the program has " +
                               std::to_string(slots_.size()));
      }
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
  for (const std::vector<int>* list : {&op.inputs, &op.outputs}) {
    for (const int slot : *list) {
      if (slots_[slot].is_external && uses_[slot].empty()) ++num_unbound_;
      uses_[slot].push_back({index, position++});
    }
  }
  for (const int slot : op.outputs) slots_[slot].is_written = true;
}

}  // namespace npu
