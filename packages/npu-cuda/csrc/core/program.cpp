#include "core/program.h"

#include "core/active_device.h"
#include "core/call_checks.h"
#include "core/exclusive.h"
#include "core/program_resources.h"
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

}  // namespace

Status Program::bind(int slot, const TensorDesc& tensor) {
  const Exclusive exclusive(&is_running_);
  NPU_TRY(begin(exclusive, "bind", true));
  if (slot < 0 || slot >= static_cast<int>(slots_.size())) {
    return Status::invalid("there is no slot " + std::to_string(slot) + ": the program has " +
                           std::to_string(slots_.size()));
  }
  const Slot& known = slots_[slot];
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

Status Program::require_ready() {
  for (size_t i = 0; i < slots_.size() && num_unbound_ > 0; ++i) {
    if (slots_[i].is_bound || uses_[i].empty()) continue;
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
  }
  return {};
}

Status Program::run_in_capture() {
  for (size_t i = 0; i < ops_.size(); ++i) {
    const Op& op = ops_[i];
    NPU_TRY(launch_or_record(device_, *op.info, op.kernel, op.call, resources_).at(name_of_op(i)));
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

Status Program::record(CaptureMode mode, bool is_dag, std::unique_ptr<Recording>* out,
                       std::vector<GraphNode>* nodes) {
  const Exclusive exclusive(&is_running_);
  NPU_TRY(begin(exclusive, "capture", true));
  NPU_TRY(require_ready());
  std::vector<std::vector<int>> after = is_dag ? hazards(accesses()) : chain(ops_.size());
  std::unique_ptr<Recording> recording;
  NPU_TRY(device_->record(mode, is_dag, &recording));
  for (size_t i = 0; i < ops_.size(); ++i) {
    NPU_TRY(record_op(i, after[i], recording.get()).at(name_of_op(i)));
    nodes->push_back({ops_[i].info->name, ops_[i].kernel->traits().id, std::move(after[i])});
  }
  return *out = std::move(recording), Status();
}

Status Program::capture(CaptureMode mode, bool is_dag, std::unique_ptr<Graph>* out) {
  std::unique_ptr<Recording> recording;
  Graph::Parts parts{device_, {resources_}, nullptr, {}, is_dag, mode};
  NPU_TRY(record(mode, is_dag, &recording, &parts.nodes));
  NPU_TRY(recording->finish(&parts.executable).at("the end of the capture"));
  *out = std::make_unique<Graph>(std::move(parts));
  return {};
}

}  // namespace npu
