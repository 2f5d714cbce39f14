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

// Whether the numbers that an op computes are those that its result can hold.
bool are_exact(const HostOp& op, Element element) {
  const bool is_truth = op.row.classes == pointwise::kTruth && op.row.kind != OpKind::Copy;
  return element == pointwise::stored_as(op.type) || (element == Element::Bool && is_truth);
}

}  // namespace

Status Plan::make(const OpCall& call) {
  NPU_TRY(chain_.make(call));
  rows_.resize(chain_.tensors.size());
  choose_types();
  const int externals = static_cast<int>(chain_.externals);
  for (int i = 0; i < externals; ++i) rows_[static_cast<size_t>(i)].row = i;
  for (int row = pointwise::kMaxRows - 1; row >= externals; --row) free_rows_.push_back(row);
  for (size_t i = 0; i < chain_.steps.size(); ++i) {
    NPU_TRY(emit(chain_.steps[i]));
    release_rows(static_cast<int>(i));
  }
  Class types[pointwise::kMaxOperands];
  for (int i = 0; i < externals; ++i) types[i] = rows_[static_cast<size_t>(i)].type;
  host_call_ = pointwise::host_call_of(call, types, steps_);
  register_steps_ = register_steps_of(chain_, call);
  return {};
}

std::optional<RegisterSteps> Plan::register_steps(const OpCall& call) const {
  std::optional<RegisterSteps> steps = register_steps_;
  if (steps && steps->addend > 0) {
    steps->to_addend = reinterpret_cast<uintptr_t>(call.inputs[steps->addend].data) - reinterpret_cast<uintptr_t>(call.outputs[0].data);
  }
  return steps;
}

pointwise::HostCall Plan::over(const pointwise::Nest& nest, const OpCall& call) const {
  Class types[pointwise::kMaxOperands];
  for (size_t i = 0; i < chain_.externals; ++i) types[i] = rows_[i].type;
  return pointwise::host_call_of(nest, call, types, steps_);
}

// A row holds the numbers that most simply become those of all steps that use them.
void Plan::choose_types() {
  std::vector<unsigned> uses(rows_.size());
  for (const ChainStep& step : chain_.steps) {
    for (const uint32_t input : step.inputs) uses[input] |= step.op->type;
    for (const uint32_t output : step.outputs) {
      const ChainTensor& tensor = chain_.tensors[output];
      const bool is_kept = tensor.last_use < 0 || are_exact(*step.op, tensor.element);
      rows_[output].type = is_kept ? step.op->type : pointwise::class_of(tensor.element);
    }
  }
  for (size_t i = 0; i < chain_.inputs; ++i) {
    const bool is_one = uses[i] == pointwise::kInt64 || uses[i] == pointwise::kFloat32 || uses[i] == pointwise::kFloat64;
    rows_[i].type = is_one ? static_cast<Class>(uses[i]) : pointwise::class_of(chain_.tensors[i].element);
  }
}

Status Plan::emit(const ChainStep& planned) {
  const HostOp& op = *planned.op;
  HostStep step{op.compute, planned.attrs, static_cast<int>(planned.inputs.size())};
  step.num_outputs = static_cast<int>(planned.outputs.size());
  uint8_t* row = step.rows;
  for (const uint32_t input : planned.inputs) NPU_TRY(input_row(input, op.type, row++));
  for (const uint32_t output : planned.outputs) NPU_TRY(output_row(output, op, row++));
  steps_.push_back(step);
  for (size_t i = 0; i < planned.outputs.size(); ++i) {
    const uint32_t output = planned.outputs[i];
    const int computed = step.rows[planned.inputs.size() + i];
    if (computed == rows_[output].row) continue;
    convert(output, op.type, computed, rows_[output].type, rows_[output].row);
    free_rows_.push_back(computed);
  }
  return {};
}

Status Plan::input_row(uint32_t tensor, Class type, uint8_t* row) {
  Row& own = rows_[tensor];
  int found = own.row;
  for (const auto& [known, place] : own.converted) {
    if (known == type) found = place;
  }
  if (own.type != type && found == own.row) {
    NPU_TRY(take_row(&found));
    convert(tensor, own.type, own.row, type, found);
    own.converted.emplace_back(type, found);
  }
  *row = static_cast<uint8_t>(found);
  return {};
}

// Where the step leaves its result: in the row of the tensor, unless it is rounded on the way there.
Status Plan::output_row(uint32_t tensor, const HostOp& op, uint8_t* row) {
  Row& own = rows_[tensor];
  if (own.row < 0) NPU_TRY(take_row(&own.row));
  int computed = own.row;
  const ChainTensor& result = chain_.tensors[tensor];
  if (result.last_use >= 0 && !are_exact(op, result.element)) NPU_TRY(take_row(&computed));
  *row = static_cast<uint8_t>(computed);
  return {};
}

void Plan::convert(uint32_t tensor, Class from, int from_row, Class to, int to_row) {
  const Element element = chain_.tensors[tensor].element;
  const Conversion conversion{pointwise::writer(element, from), pointwise::reader(element, to)};
  static_assert(sizeof(conversion) <= sizeof(StepAttrs));
  char* attrs = conversions_.emplace_back().data();
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
  for (size_t i = 0; i < rows_.size(); ++i) {
    if (chain_.tensors[i].last_use != step) continue;
    for (const auto& [type, row] : rows_[i].converted) free_rows_.push_back(row);
    rows_[i].converted.clear();
    if (i >= chain_.externals) free_rows_.push_back(rows_[i].row);
  }
}

}  // namespace npu::fusion
