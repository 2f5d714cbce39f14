#include "core/program.h"

#include "core/device.h"
#include "core/graph.h"
#include "core/op_info.h"
#include "core/trace.h"

namespace npu {
namespace {

// The strides say which elements are meant only where an axis has more than one.
bool same_strides(const TensorDesc& a, const TensorDesc& b) {
  if (a.numel == 0) return true;
  for (int i = 0; i < a.rank; ++i) {
    if (a.shape[i] > 1 && a.strides[i] != b.strides[i]) return false;
  }
  return true;
}

std::string device_text(const TensorDesc& tensor) {
  if (tensor.device_type == NPU_CPU) return "host";
  return (tensor.device_type == NPU_CUDA ? "cuda:" : "device " + std::to_string(tensor.device_type) + ":") +
         std::to_string(tensor.device_id);
}

Status fits(const TensorDesc& slot, const TensorDesc& tensor) {
  if (tensor.device_type != slot.device_type || tensor.device_id != slot.device_id) {
    return Status::invalid(" is on " + device_text(slot) + ", the tensor is on " + device_text(tensor));
  }
  if (!(tensor.dtype == slot.dtype) || !same_shape(tensor, slot) || !same_strides(tensor, slot)) {
    return Status::invalid(" is " + text_of(slot) + ", the tensor is " + text_of(tensor));
  }
  if (slot.numel == 0) return {};
  if (!tensor.data) return Status::invalid(": the tensor has no memory: its pointer is null");
  const uintptr_t address = reinterpret_cast<uintptr_t>(tensor.data);
  if (address % slot.alignment == 0) return {};
  return Status::invalid(" promises an alignment of " + std::to_string(slot.alignment) +
                         " bytes, the tensor has " + std::to_string(address & (~address + 1)) +
                         ": bind other memory, or promise less when the slot is added");
}

ByteRange range_of(const void* data, uint64_t bytes) {
  const auto begin = reinterpret_cast<uintptr_t>(data);
  return {begin, begin + bytes};
}

std::vector<std::vector<int>> chain(size_t length) {
  std::vector<std::vector<int>> after(length);
  for (size_t i = 1; i < length; ++i) after[i] = {static_cast<int>(i) - 1};
  return after;
}

std::shared_ptr<void> owned(Device* device, void* memory) {
  return {memory, [device](void* block) { device->free(block); }};
}

bool are_too_large(const std::vector<Interval>& blocks) {
  double sum = 0;
  for (const Interval& block : blocks) sum += double(block.bytes) + kArenaAlignment;
  return sum > 0x1p62;
}

}  // namespace

Status Program::bind(int slot, const TensorDesc& tensor) {
  const Exclusive exclusive(&is_running_);
  NPU_TRY(begin(exclusive, "bind", true));
  NPU_TRY(check_slot_number(slot));
  const Slot& known = slots_[slot];
  if (known.is_view()) {
    return Status::invalid(name_of_slot(slot) + " is a view of " + name_of_slot(known.base) +
                           ": its memory is that of its base");
  }
  if (!known.is_external) {
    return Status::invalid(name_of_slot(slot) + " is a temporary: its memory is in the arena of the program");
  }
  if (known.is_bound && known.desc.data == tensor.data && known.desc.dtype == tensor.dtype &&
      same_shape(known.desc, tensor) && same_strides(known.desc, tensor) &&
      known.desc.device_type == tensor.device_type && known.desc.device_id == tensor.device_id) {
    return {};
  }
  if (const Status status = fits(known.desc, tensor); !status.ok()) {
    return Status(status.code(), name_of_slot(slot) + status.message());
  }
  set_data(slot, tensor.data);
  return {};
}

Status Program::rebind(const std::vector<int>& slots, const std::vector<void*>& addresses) {
  const Exclusive exclusive(&is_running_);
  NPU_TRY(begin(exclusive, "bind", true));
  for (size_t i = 0; i < slots.size(); ++i) {
    const Slot& known = slots_[slots[i]];
    if (!known.is_bound || known.desc.data != addresses[i]) set_data(slots[i], addresses[i]);
  }
  return {};
}

Status Program::require_ready() {
  for (size_t i = 0; i < slots_.size() && num_unbound_ > 0; ++i) {
    if (slots_[i].is_bound || !slots_[i].is_used() || slots_[i].is_view()) continue;
    return Status::invalid(name_of_slot(static_cast<int>(i)) + " is not bound: bind() a tensor to it");
  }
  for (; !unchecked_.empty(); unchecked_.pop_back()) {
    Op& op = ops_[unchecked_.back()];
    NPU_TRY(check_call(*op.info, op.call, true).at("op " + std::to_string(unchecked_.back())));
    op.is_checked = true;
  }
  return {};
}

Status Program::run(void* stream) {
  const Exclusive exclusive(&is_running_);
  NPU_TRY(begin(exclusive, "run", true));
  launched_ = 0;
  if (num_unbound_ > 0 || !unchecked_.empty()) NPU_TRY(require_ready());
  if (!stream) return Status::invalid("run: the stream is null; that of CUDA without a name is the handle 1");
  bool is_capturing = false;
  NPU_TRY(device_->is_capturing(stream, &is_capturing));
  ActiveDevice active;
  NPU_TRY(active.set(device_));
  if (stream != stream_) {
    for (Op& op : ops_) op.call.stream = stream;
    stream_ = stream;
  }
  if (is_capturing) return run_in_capture();
  for (const Op& op : ops_) {
    if (Status status = traced_launch(*op.kernel, op.call); !status.ok()) {
      return std::move(status).at(name_of_op(static_cast<size_t>(&op - ops_.data())));
    }
    ++launched_;
  }
  return {};
}

Status Program::run_in_capture() {
  NPU_TRY(keep_in_graph(device_, stream_, resources_));
  for (size_t i = 0; i < ops_.size(); ++i) {
    const Op& op = ops_[i];
    NPU_TRY(launch_or_record(device_, *op.info, op.kernel, op.call, nullptr).at(name_of_op(i)));
  }
  return {};
}

std::shared_ptr<void> Program::resources() const { return resources_; }

std::vector<Accesses> Program::accesses() const {
  std::vector<Accesses> all;
  for (const Op& op : ops_) {
    Accesses one;
    for (size_t i = 0; i < op.tensors.size(); ++i) {
      const TensorDesc& tensor = op.tensors[i];
      auto& list = i < op.inputs.size() ? one.reads : one.writes;
      list.push_back(range_of(tensor.data, static_cast<uint64_t>(span_bytes(tensor))));
    }
    one.writes.push_back(range_of(op.call.workspace, op.call.workspace_bytes));
    all.push_back(std::move(one));
  }
  return all;
}

Status Program::record_op(size_t index, const std::vector<int>& after, Recording* recording) const {
  const Op& op = ops_[index];
  OpCall call = op.call;
  call.stream = recording->stream();
  NPU_TRY(recording->begin_op(after));
  NPU_TRY(device_->launch(op.kernel, call));
  return recording->end_op();
}

// The host runs launches in their order, whatever they wait for.
std::vector<std::vector<int>> Program::edges(Topology* topology) const {
  const bool is_unclear = *topology == Topology::Auto && device_->type() == DeviceType::Cuda;
  std::vector<std::vector<int>> after;
  if (is_unclear || *topology == Topology::Dag) after = hazards(accesses());
  if (*topology == Topology::Auto) {
    std::vector<OpSize> sizes;
    for (const Op& op : ops_) sizes.push_back(size_of(op.call, op.kernel->cost(op.call)));
    *topology = is_unclear && gains_by_dag(after, sizes) ? Topology::Dag : Topology::Chain;
  }
  return *topology == Topology::Dag ? after : chain(ops_.size());
}

Status Program::record(CaptureMode mode, Topology* topology, std::unique_ptr<Recording>* out,
                       std::vector<GraphNode>* nodes) {
  const Exclusive exclusive(&is_running_);
  NPU_TRY(begin(exclusive, "capture", true));
  NPU_TRY(require_ready());
  std::vector<std::vector<int>> after = edges(topology);
  std::unique_ptr<Recording> recording;
  NPU_TRY(device_->record(mode, *topology == Topology::Dag, &recording));
  for (size_t i = 0; i < ops_.size(); ++i) {
    NPU_TRY(record_op(i, after[i], recording.get()).at(name_of_op(i)));
    nodes->push_back({ops_[i].info->name, ops_[i].kernel->traits().id, std::move(after[i])});
  }
  return *out = std::move(recording), Status();
}

Status Program::capture(CaptureMode mode, Topology topology, std::unique_ptr<Graph>* out) {
  std::unique_ptr<Recording> recording;
  Graph::Parts parts{device_, {resources_}, nullptr, {}, false, mode};
  NPU_TRY(record(mode, &topology, &recording, &parts.nodes));
  parts.is_dag = topology == Topology::Dag;
  NPU_TRY(recording->finish(&parts.executable).at("the end of the capture"));
  *out = std::make_unique<Graph>(std::move(parts));
  return {};
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
  const Slot& own = slots_[slot];
  if (own.is_external && !own.is_bound && own.is_used()) --num_unbound_;
  point_ops(slot, data);
  for (const int view : own.views) {
    point_ops(view, data ? static_cast<char*>(data) + slots_[view].base_offset : nullptr);
  }
}

void Program::point_ops(int slot, void* data) {
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
    const bool is_placed = !slots_[i].is_external && !slots_[i].is_view() && slots_[i].is_used();
    const uint64_t bytes = is_placed ? static_cast<uint64_t>(span_bytes(slots_[i].desc)) : 0;
    blocks.push_back({bytes, is_placed ? slots_[i].first_op : 0, is_placed ? slots_[i].last_op : 0});
  }
  for (int i = 0; i < static_cast<int>(ops_.size()); ++i) blocks.push_back({ops_[i].call.workspace_bytes, i, i});
  if (are_too_large(blocks)) return Status::invalid("the temporaries have more bytes than there are addresses");
  const ArenaPlan plan = plan_arena(blocks);
  NPU_TRY(resources_->allocate(device_, plan.bytes, allocator));
  arena_bytes_ = plan.bytes;
  for (size_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i].is_external || slots_[i].is_view()) continue;
    slots_[i].arena_offset = plan.offsets[i];
    for (const int view : slots_[i].views) slots_[view].arena_offset = plan.offsets[i] + slots_[view].base_offset;
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
  NPU_TRY(device_->start());
  resources_ = std::make_shared<Resources>();
  Status status = plan(allocator);
  is_final_ = status.ok();
  if (!is_final_) resources_.reset();
  return status;
}

}  // namespace npu
