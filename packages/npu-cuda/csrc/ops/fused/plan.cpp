#include "ops/fused/plan.h"

#include <algorithm>

#include "ops/pointwise/pointwise.h"

namespace npu::fusion {

using pointwise::Class;
using pointwise::Element;
using pointwise::HostOp;
using pointwise::HostStep;

namespace {

struct Conversion {
  pointwise::WriteRow write;
  pointwise::ReadRow read;
};

void convert_row(const void* const* in, void* const* out, int64_t n, const void* attrs) {
  alignas(64) char elements[pointwise::kBlock * sizeof(double)];
  const auto& conversion = *static_cast<const Conversion*>(attrs);
  conversion.write(in[0], elements, 1, n);
  conversion.read(elements, 1, out[0], n);
}

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

// Whether the numbers that an op computes are those that its result can hold.
bool are_exact(const HostOp& op, Element element) {
  const bool is_truth = op.row.classes == pointwise::kTruth && op.row.kind != OpKind::Copy;
  return element == pointwise::stored_as(op.type) || (element == Element::Bool && is_truth);
}

}  // namespace

Status Plan::make(const OpCall& call) {
  Payload payload;
  NPU_TRY(read_payload(call, &payload));
  add_tensors(call, payload);
  for (size_t i = 0; i < payload.steps.size(); ++i) {
    NPU_TRY(add_step(call, payload.steps[i]).at([&] { return "step " + std::to_string(i); }));
  }
  NPU_TRY(choose_types(call));
  for (int row = pointwise::kMaxRows - 1; row >= static_cast<int>(externals_); --row) free_rows_.push_back(row);
  for (size_t i = 0; i < planned_.size(); ++i) {
    NPU_TRY(emit(planned_[i]));
    release_rows(static_cast<int>(i));
  }
  Class types[pointwise::kMaxOperands];
  for (size_t i = 0; i < externals_; ++i) types[i] = tensors_[i].type;
  host_call_ = pointwise::host_call_of(call, types, steps_);
  return {};
}

pointwise::HostCall Plan::over(const pointwise::Nest& nest, const OpCall& call) const {
  Class types[pointwise::kMaxOperands];
  for (size_t i = 0; i < externals_; ++i) types[i] = tensors_[i].type;
  return pointwise::host_call_of(nest, call, types, steps_);
}

void Plan::add_tensors(const OpCall& call, const Payload& payload) {
  num_inputs_ = static_cast<size_t>(call.num_inputs);
  externals_ = num_inputs_ + static_cast<size_t>(call.num_outputs);
  for (int i = 0; i < static_cast<int>(externals_); ++i) tensors_.push_back({pointwise::operand_of(call, i), {}});
  for (const DType dtype : payload.temporaries) tensors_.push_back({temporary_like(call.outputs[0], dtype), {}});
  for (size_t i = 0; i < tensors_.size(); ++i) {
    tensors_[i].element = pointwise::element_of(tensors_[i].desc.dtype);
    tensors_[i].is_written = i < num_inputs_;
    if (i < externals_) tensors_[i].row = static_cast<int>(i);
  }
}

Status Plan::add_step(const OpCall& call, const Step& step) {
  const auto middle = step.tensors.begin() + step.num_inputs;
  PlannedStep planned{nullptr, attrs_.emplace_back().data(), {step.tensors.begin(), middle}, {middle, step.tensors.end()}};
  std::vector<TensorDesc> descs;
  for (const uint32_t tensor : step.tensors) descs.push_back(tensors_[tensor].desc);
  for (const uint32_t tensor : planned.inputs) {
    if (!tensors_[tensor].is_written) return Status::not_implemented(name_of_tensor(tensor) + " is read before it is written");
    tensors_[tensor].last_use = static_cast<int>(planned_.size());
  }
  for (const uint32_t tensor : planned.outputs) {
    if (tensors_[tensor].is_written) return Status::not_implemented(name_of_tensor(tensor) + " is written already");
    if (!same_shape(tensors_[tensor].desc, call.outputs[0])) {
      return other_shape(tensors_[tensor].desc, call.outputs[0], "a result", "the first output");
    }
    tensors_[tensor].is_written = true;
  }
  OpCall part = call;
  part.num_inputs = step.num_inputs;
  part.num_outputs = static_cast<int>(planned.outputs.size());
  part.inputs = descs.data();
  part.outputs = descs.data() + step.num_inputs;
  part.attrs = step.attrs;
  NPU_TRY(find_op(step, part, &planned.op));
  planned.op->load_attrs(part, planned.attrs);
  planned_.push_back(std::move(planned));
  return {};
}

// A row holds the numbers that most simply become those of all steps that use them.
Status Plan::choose_types(const OpCall& call) {
  std::vector<unsigned> uses(tensors_.size());
  for (const PlannedStep& step : planned_) {
    for (const uint32_t input : step.inputs) uses[input] |= step.op->type;
    for (const uint32_t output : step.outputs) {
      Tensor& tensor = tensors_[output];
      const bool is_kept = tensor.last_use < 0 || are_exact(*step.op, tensor.element);
      tensor.type = is_kept ? step.op->type : pointwise::class_of(tensor.element);
    }
  }
  for (size_t i = 0; i < num_inputs_; ++i) {
    const bool is_one = uses[i] == pointwise::kInt64 || uses[i] == pointwise::kFloat32 || uses[i] == pointwise::kFloat64;
    tensors_[i].type = is_one ? static_cast<Class>(uses[i]) : pointwise::class_of(tensors_[i].element);
  }
  if (externals_ > size_t{pointwise::kMaxOperands}) {
    return Status::not_implemented("it has " + std::to_string(externals_) + " tensors, more than " +
                                   std::to_string(pointwise::kMaxOperands));
  }
  for (size_t i = num_inputs_; i < externals_; ++i) {
    if (!tensors_[i].is_written) return Status::not_implemented("no step writes output " + std::to_string(i - num_inputs_));
  }
  return pointwise::check_shapes(call);
}

Status Plan::emit(const PlannedStep& planned) {
  const HostOp& op = *planned.op;
  HostStep step{op.compute, planned.attrs, static_cast<int>(planned.inputs.size())};
  step.num_outputs = static_cast<int>(planned.outputs.size());
  uint8_t* row = step.rows;
  for (const uint32_t input : planned.inputs) NPU_TRY(input_row(&tensors_[input], op.type, row++));
  for (const uint32_t output : planned.outputs) NPU_TRY(output_row(&tensors_[output], op, row++));
  steps_.push_back(step);
  for (size_t i = 0; i < planned.outputs.size(); ++i) {
    const Tensor& tensor = tensors_[planned.outputs[i]];
    const int row = step.rows[planned.inputs.size() + i];
    if (row == tensor.row) continue;
    convert(tensor, op.type, row, tensor.type, tensor.row);
    free_rows_.push_back(row);
  }
  return {};
}

Status Plan::input_row(Tensor* tensor, Class type, uint8_t* row) {
  int found = tensor->row;
  for (const auto& [known, place] : tensor->converted) {
    if (known == type) found = place;
  }
  if (tensor->type != type && found == tensor->row) {
    NPU_TRY(take_row(&found));
    convert(*tensor, tensor->type, tensor->row, type, found);
    tensor->converted.emplace_back(type, found);
  }
  *row = static_cast<uint8_t>(found);
  return {};
}

// Where the step leaves its result: in the row of the tensor, unless it is rounded on the way there.
Status Plan::output_row(Tensor* tensor, const HostOp& op, uint8_t* row) {
  if (tensor->row < 0) NPU_TRY(take_row(&tensor->row));
  int computed = tensor->row;
  if (tensor->last_use >= 0 && !are_exact(op, tensor->element)) NPU_TRY(take_row(&computed));
  *row = static_cast<uint8_t>(computed);
  return {};
}

void Plan::convert(const Tensor& tensor, Class from, int from_row, Class to, int to_row) {
  const Conversion conversion{pointwise::writer(tensor.element, from), pointwise::reader(tensor.element, to)};
  static_assert(sizeof(conversion) <= sizeof(Attrs));
  char* attrs = attrs_.emplace_back().data();
  std::memcpy(attrs, &conversion, sizeof(conversion));
  HostStep step{convert_row, attrs, 1, 1};
  step.rows[0] = static_cast<uint8_t>(from_row);
  step.rows[1] = static_cast<uint8_t>(to_row);
  steps_.push_back(step);
}

Status Plan::take_row(int* row) {
  if (free_rows_.empty()) {
    return Status::not_implemented("it has more than " + std::to_string(pointwise::kMaxRows) + " tensors at a time");
  }
  *row = free_rows_.back();
  free_rows_.pop_back();
  return {};
}

void Plan::release_rows(int step) {
  for (size_t i = 0; i < tensors_.size(); ++i) {
    Tensor& tensor = tensors_[i];
    if (tensor.last_use != step) continue;
    for (const auto& [type, row] : tensor.converted) free_rows_.push_back(row);
    tensor.converted.clear();
    if (i >= externals_) free_rows_.push_back(tensor.row);
  }
}

}  // namespace npu::fusion
