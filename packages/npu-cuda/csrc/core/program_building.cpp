// Program, until it is final: slots, ops, the choice of kernels, the arena.
#include <algorithm>

#include "core/active_device.h"
#include "core/call_checks.h"
#include "core/program.h"
#include "core/program_resources.h"

namespace npu {
namespace {

bool is_contiguous_layout(const TensorDesc& desc) {
  int64_t expected = 1;
  for (int i = desc.rank - 1; i >= 0; --i) {
    if (desc.shape[i] != 1 && desc.strides[i] != expected) return false;
    expected *= desc.shape[i];
  }
  return true;
}

Status check_desc(const TensorDesc& desc) {
  if (desc.rank < 0 || desc.rank > NPU_MAX_RANK) {
    return Status::invalid("has rank " + std::to_string(desc.rank) + "; 0 to " + std::to_string(NPU_MAX_RANK) +
                           " are possible");
  }
  if (item_bytes(desc.dtype) == 0) return Status::invalid("has a dtype of 0 bits");
  for (int i = 0; i < desc.rank; ++i) {
    if (desc.shape[i] < 0 || desc.strides[i] < 0) {
      return Status::invalid("is " + text_of(desc) + ": sizes and strides are not negative");
    }
  }
  const bool is_power = desc.alignment != 0 && (desc.alignment & (desc.alignment - 1)) == 0;
  if (is_power && desc.alignment <= kArenaAlignment) return {};
  return Status::invalid("has the alignment " + std::to_string(desc.alignment) +
                         "; it is a power of two, at most 256");
}

// A description without memory whose redundant fields are true.
TensorDesc completed(TensorDesc desc, const Device& device) {
  desc.data = nullptr;
  desc.numel = 1;
  for (int i = 0; i < desc.rank; ++i) desc.numel *= desc.shape[i];
  desc.device_type = static_cast<int32_t>(device.type());
  desc.device_id = device.id();
  desc.flags = desc.numel == 0 || is_contiguous_layout(desc) ? NPU_TENSOR_CONTIGUOUS : 0;
  return desc;
}

std::shared_ptr<void> owned(Device* device, void* memory) {
  return {memory, [device](void* block) { device->free(block); }};
}

}  // namespace

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

Status Program::require_open(const char* action) const {
  if (!is_final_) return {};
  return Status::invalid(std::string(action) + ": this program is final; make another one");
}

Status Program::add_slot(TensorDesc desc, bool is_external, std::string name, int* slot) {
  NPU_TRY(require_open("add_slot"));
  if (!is_external) desc.alignment = kArenaAlignment;
  slots_.push_back({desc, is_external, std::move(name)});
  uses_.emplace_back();
  const int index = static_cast<int>(slots_.size()) - 1;
  if (Status status = check_desc(desc); !status.ok()) {
    const std::string place = name_of_slot(index);
    slots_.pop_back();
    uses_.pop_back();
    return Status(status.code(), place + " " + status.message());
  }
  slots_.back().desc = completed(desc, *device_);
  return *slot = index, Status();
}

Status Program::find_op(OpKind kind, const std::string& kernel_id, Op* op) const {
  const RegistrySnapshot& registry = KernelRegistry::instance().snapshot();
  if (!kernel_id.empty()) {
    op->kernel = registry.find_kernel(kernel_id);
    op->is_pinned = true;
    if (!op->kernel) return Status::invalid("there is no kernel '" + kernel_id + "'; npu_cuda.kernels() lists them");
    if (op->kernel->traits().device != device_->type()) {
      return Status::invalid("the kernel '" + kernel_id + "' does not run on " + device_->name());
    }
    kind = op->kernel->traits().kind;
  }
  op->info = registry.find_op(kind);
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
      return Status::invalid(place + ", which is input " + std::to_string(j) + ", too: this op does not work in place");
    }
    if (std::count(op.outputs.begin(), op.outputs.begin() + static_cast<std::ptrdiff_t>(i), op.outputs[i]) > 0) {
      return Status::invalid(place + ", which is another output, too");
    }
  }
  return {};
}

Status Program::add_op(OpKind kind, std::string kernel_id, std::vector<int> inputs, std::vector<int> outputs,
                       AttrBlob attrs, int* index) {
  NPU_TRY(require_open("add_op"));
  const int number = static_cast<int>(ops_.size());
  const std::string place = "op " + std::to_string(number);
  Op op;
  NPU_TRY(find_op(kind, kernel_id, &op).at(place));
  op.inputs = std::move(inputs);
  op.outputs = std::move(outputs);
  for (const std::vector<int>* list : {&op.inputs, &op.outputs}) {
    for (const int slot : *list) {
      if (slot < 0 || slot >= static_cast<int>(slots_.size())) {
        return Status::invalid(place + " (" + op.info->name + "): there is no slot " + std::to_string(slot) +
                               ": the program has " + std::to_string(slots_.size()));
      }
      op.tensors.push_back(slots_[slot].desc);
    }
  }
  if (attrs.bytes > 0) {
    const auto* bytes = static_cast<const char*>(attrs.data);
    op.attrs.assign(bytes, bytes + attrs.bytes);
  }
  op.call.struct_size = sizeof(OpCall);
  op.call.num_inputs = static_cast<int32_t>(op.inputs.size());
  op.call.num_outputs = static_cast<int32_t>(op.outputs.size());
  op.call.compute_capability = device_->compute_capability();
  op.call.inputs = op.tensors.data();
  op.call.outputs = op.tensors.data() + op.inputs.size();
  op.call.attrs = {attrs.schema_id, attrs.bytes, op.attrs.data()};
  NPU_TRY(check_call(*op.info, op.call, false).at(place));
  NPU_TRY(check_slots(op).at(place + " (" + op.info->name + ")"));
  use_slots(number, op);
  ops_.push_back(std::move(op));
  return *index = number, Status();
}

void Program::use_slots(int index, const Op& op) {
  int position = 0;
  for (const std::vector<int>* list : {&op.inputs, &op.outputs}) {
    for (const int slot : *list) {
      if (slots_[slot].is_external && uses_[slot].empty()) ++num_unbound_;
      uses_[slot].emplace_back(index, position++);
    }
  }
  for (const int slot : op.outputs) slots_[slot].is_written = true;
}

Status Program::select_kernel(Op* op) {
  if (op->is_pinned) {
    return takes(*op->kernel, op->call, rules_, &op->call.workspace_bytes)
        .at("the kernel '" + op->kernel->traits().id + "' does not take " + text_of(op->call));
  }
  op->kernel = nullptr;
  Selection selection = select(*op->info, op->call, device_->type(), rules_);
  if (!selection.kernel) return refused(*op->info, op->call, selection, device_->type());
  op->kernel = std::move(selection.kernel);
  op->call.workspace_bytes = selection.workspace_bytes;
  op->refusals = std::move(selection.refusals);
  return {};
}

void Program::set_data(int slot, void* data) {
  if (slots_[slot].is_external && !slots_[slot].is_bound && !uses_[slot].empty()) --num_unbound_;
  slots_[slot].desc.data = data;
  slots_[slot].is_bound = true;
  for (const auto& [index, position] : uses_[slot]) {
    Op& op = ops_[index];
    op.tensors[position].data = data;
    if (op.is_checked) unchecked_.push_back(static_cast<size_t>(index));
    op.is_checked = false;
  }
}

Status Program::place(const Allocator& allocator) {
  std::vector<Interval> blocks;
  for (size_t i = 0; i < slots_.size(); ++i) {
    const bool is_placed = !slots_[i].is_external && !uses_[i].empty();
    const uint64_t bytes = is_placed ? static_cast<uint64_t>(span_bytes(slots_[i].desc)) : 0;
    blocks.push_back({bytes, is_placed ? uses_[i].front().first : 0, is_placed ? uses_[i].back().first : 0});
  }
  for (int i = 0; i < static_cast<int>(ops_.size()); ++i) blocks.push_back({ops_[i].call.workspace_bytes, i, i});
  const ArenaPlan plan = plan_arena(blocks);
  NPU_TRY(resources_->allocate(device_, plan.bytes, allocator));
  arena_bytes_ = plan.bytes;
  for (size_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i].is_external) continue;
    slots_[i].arena_offset = plan.offsets[i];
    set_data(static_cast<int>(i), blocks[i].bytes > 0 ? resources_->arena + plan.offsets[i] : nullptr);
  }
  for (size_t i = 0; i < ops_.size(); ++i) {
    ops_[i].workspace_offset = plan.offsets[slots_.size() + i];
    if (ops_[i].call.workspace_bytes > 0) ops_[i].call.workspace = resources_->arena + ops_[i].workspace_offset;
  }
  return {};
}

Status Program::Resources::allocate(Device* device, uint64_t bytes, const Allocator& allocator) {
  if (bytes == 0) return {};
  void* memory = nullptr;
  if (!allocator) {
    NPU_TRY(device->allocate(bytes, &memory));
    memory_owner = owned(device, memory);
  } else {
    // Memory of others may begin anywhere.
    NPU_TRY(allocator(bytes + kArenaAlignment - 1, &memory, &memory_owner));
    if (!memory) return Status::invalid("the allocator gave no memory for " + std::to_string(bytes) + " bytes");
  }
  const uintptr_t start = reinterpret_cast<uintptr_t>(memory);
  arena = static_cast<char*>(memory) + ((kArenaAlignment - start % kArenaAlignment) % kArenaAlignment);
  return {};
}

Program::Resources::~Resources() {
  for (const auto& [kernel, state] : states) kernel->release(state);
}

Status Program::prepare() {
  ActiveDevice active;
  NPU_TRY(active.set(device_));
  for (size_t i = 0; i < ops_.size(); ++i) {
    Op& op = ops_[i];
    NPU_TRY(op.kernel->prepare(op.call, &op.call.state).at(name_of_op(i)));
    if (op.call.state) resources_->states.emplace_back(op.kernel, op.call.state);
  }
  for (size_t i = ops_.size(); i > 0; --i) unchecked_.push_back(i - 1);  // taken from the end: the first op first
  return {};
}

Status Program::plan(const Allocator& allocator) {
  for (size_t i = 0; i < ops_.size(); ++i) {
    NPU_TRY(select_kernel(&ops_[i]).at("op " + std::to_string(i) + " (" + ops_[i].info->name + ")"));
  }
  NPU_TRY(place(allocator).at("the arena"));
  return prepare();
}

Status Program::finalize(const Allocator& allocator) {
  NPU_TRY(require_open("finalize"));
  resources_ = std::make_shared<Resources>();
  Status status = plan(allocator);
  is_final_ = status.ok();
  if (!is_final_) resources_.reset();
  return status;
}

}  // namespace npu
