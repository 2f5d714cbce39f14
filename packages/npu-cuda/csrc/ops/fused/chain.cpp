#include "ops/fused/chain.h"

#include <algorithm>

#include "ops/pointwise/pointwise.h"

namespace npu::fusion {

using pointwise::Class;
using pointwise::HostOp;

namespace {

std::string name_of_tensor(uint32_t tensor) { return "tensor " + std::to_string(tensor); }

// A temporary has the shape of the outputs.
TensorDesc temporary_like(const TensorDesc& output, DType dtype) {
  TensorDesc desc = output;
  desc.dtype = dtype;
  desc.data = nullptr;
  desc.flags |= NPU_TENSOR_CONTIGUOUS;
  int64_t stride = 1;
  for (int axis = desc.rank - 1; axis >= 0; --axis) {
    desc.strides[axis] = stride;
    stride *= std::max<int64_t>(desc.shape[axis], 1);
  }
  return desc;
}

// The op that computes a step in the first class that is not below those of its tensors.
Status find_op(const Step& step, const OpCall& call, const HostOp** found) {
  Class needed = pointwise::kInt64;
  for (int i = 0; i < call.num_inputs + call.num_outputs; ++i) {
    needed = std::max(needed, pointwise::class_of(pointwise::element_of(pointwise::operand_of(call, i).dtype)));
  }
  for (const HostOp& op : pointwise::host_ops()) {
    const bool is_it = op.row.kind == step.kind && op.row.num_inputs() == call.num_inputs;
    if (!is_it || op.row.num_outputs() != call.num_outputs) continue;
    *found = &op;
    if (op.type >= needed) break;
  }
  if (*found) return (*found)->functions.supported(call);
  return Status::not_implemented("there is no pointwise op of kind " + std::to_string(int(step.kind)) + " with " +
                                 std::to_string(call.num_inputs) + " inputs and " + std::to_string(call.num_outputs) +
                                 " outputs");
}

}  // namespace

Status Chain::make(const OpCall& call) {
  Payload payload;
  NPU_TRY(read_payload(call, &payload));
  add_tensors(call, payload);
  for (size_t i = 0; i < payload.steps.size(); ++i) {
    NPU_TRY(add_step(call, payload.steps[i]).at([&] { return "step " + std::to_string(i); }));
  }
  if (externals > size_t{pointwise::kMaxOperands}) {
    return Status::not_implemented("it has " + std::to_string(externals) + " tensors, more than " +
                                   std::to_string(pointwise::kMaxOperands));
  }
  for (size_t i = inputs; i < externals; ++i) {
    if (!tensors[i].is_written) return Status::not_implemented("no step writes output " + std::to_string(i - inputs));
  }
  return pointwise::check_shapes(call);
}

void Chain::add_tensors(const OpCall& call, const Payload& payload) {
  inputs = static_cast<size_t>(call.num_inputs);
  externals = inputs + static_cast<size_t>(call.num_outputs);
  for (int i = 0; i < static_cast<int>(externals); ++i) tensors.push_back({pointwise::operand_of(call, i), {}});
  for (const DType dtype : payload.temporaries) tensors.push_back({temporary_like(call.outputs[0], dtype), {}});
  for (size_t i = 0; i < tensors.size(); ++i) {
    tensors[i].element = pointwise::element_of(tensors[i].desc.dtype);
    tensors[i].is_written = i < inputs;
  }
}

Status Chain::add_step(const OpCall& call, const Step& step) {
  const auto middle = step.tensors.begin() + step.num_inputs;
  ChainStep made{nullptr, attrs_.emplace_back().data(), {step.tensors.begin(), middle}, {middle, step.tensors.end()}};
  std::vector<TensorDesc> descs;
  for (const uint32_t tensor : step.tensors) descs.push_back(tensors[tensor].desc);
  for (const uint32_t tensor : made.inputs) {
    if (!tensors[tensor].is_written) return Status::not_implemented(name_of_tensor(tensor) + " is read before it is written");
    tensors[tensor].last_use = static_cast<int>(steps.size());
  }
  for (const uint32_t tensor : made.outputs) {
    if (tensors[tensor].is_written) return Status::not_implemented(name_of_tensor(tensor) + " is written already");
    if (!same_shape(tensors[tensor].desc, call.outputs[0])) {
      return other_shape(tensors[tensor].desc, call.outputs[0], "a result", "the first output");
    }
    tensors[tensor].is_written = true;
  }
  OpCall part = call;
  part.num_inputs = step.num_inputs;
  part.num_outputs = static_cast<int>(made.outputs.size());
  part.inputs = descs.data();
  part.outputs = descs.data() + step.num_inputs;
  part.attrs = step.attrs;
  NPU_TRY(find_op(step, part, &made.op));
  made.op->load_attrs(part, made.attrs);
  steps.push_back(std::move(made));
  return {};
}

}  // namespace npu::fusion
