// Program::finalize: the choice of kernels, the arena, what kernels prepare.
#include "core/active_device.h"
#include "core/call_checks.h"
#include "core/exclusive.h"
#include "core/program.h"
#include "core/program_resources.h"

namespace npu {
namespace {

std::shared_ptr<void> owned(Device* device, void* memory) {
  return {memory, [device](void* block) { device->free(block); }};
}

bool are_too_large(const std::vector<Interval>& blocks) {
  double sum = 0;
  for (const Interval& block : blocks) sum += double(block.bytes) + kArenaAlignment;
  return sum > 0x1p62;
}

}  // namespace

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
    blocks.push_back({bytes, is_placed ? uses_[i].front().op : 0, is_placed ? uses_[i].back().op : 0});
  }
  for (int i = 0; i < static_cast<int>(ops_.size()); ++i) blocks.push_back({ops_[i].call.workspace_bytes, i, i});
  if (are_too_large(blocks)) return Status::invalid("the temporaries have more bytes than there are addresses");
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
  const Exclusive exclusive(&is_running_);
  NPU_TRY(begin(exclusive, "finalize", false));
  resources_ = std::make_shared<Resources>();
  Status status = plan(allocator);
  is_final_ = status.ok();
  if (!is_final_) resources_.reset();
  return status;
}

}  // namespace npu
