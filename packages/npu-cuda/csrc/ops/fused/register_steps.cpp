#include "ops/fused/register_steps.h"

#include "ops/pointwise/nest.h"

namespace npu::fusion {
namespace {

// Whether elements of one shape are in the same places of their tensors.
bool are_places_equal(const TensorDesc& tensor, const TensorDesc& y) {
  for (int axis = 0; axis < y.rank; ++axis) {
    if (y.shape[axis] > 1 && pointwise::stride_along(tensor, y, axis) != y.strides[axis]) return false;
  }
  return true;
}

// The tensor of the chain that a step adds to tensor `sums`; 0, which is the first of the sums, where it does something else.
size_t addend_of(const ChainStep& step, uint32_t sums) {
  using pointwise::op::EltwiseAdd;
  if (step.op->row.name != EltwiseAdd::row.name || reinterpret_cast<const EltwiseAdd::Attrs*>(step.attrs)->alpha != 1) return 0;
  if (step.inputs[0] == sums) return step.inputs[1];
  return step.inputs[1] == sums ? step.inputs[0] : 0;
}

// False where a step is not an activation that registers take.
bool set_activation(const ChainStep& step, RegisterSteps* steps) {
  namespace op = pointwise::op;
  using Activation = RegisterSteps::Activation;
  const std::string_view name = step.op->row.name;
  if (name == op::EltwiseRelu::row.name) steps->activation = Activation::kRelu;
  else if (name == op::Hardswish::row.name) steps->activation = Activation::kHardswish;
  else if (name == op::Clamp::row.name) steps->activation = Activation::kClamp;
  if (steps->activation == Activation::kClamp) steps->bounds = *reinterpret_cast<const pointwise::Bounds*>(step.attrs);
  return steps->activation != Activation::kNone;
}

}  // namespace

std::optional<RegisterSteps> register_steps_of(const Chain& chain, const OpCall& call) {
  for (const ChainTensor& tensor : chain.tensors) {
    if (tensor.desc.dtype != kFloat32) return {};
  }
  RegisterSteps steps;
  uint32_t sums = 0;
  auto step = chain.steps.begin();
  if (step != chain.steps.end() && (steps.addend = addend_of(*step, sums)) > 0) {
    if (steps.addend >= chain.inputs || !are_places_equal(call.inputs[steps.addend], call.outputs[0])) return {};
    sums = step++->outputs[0];
  }
  if (step != chain.steps.end() && set_activation(*step, &steps)) {
    if (step->inputs[0] != sums) return {};
    sums = step++->outputs[0];
  }
  const bool is_result = sums == chain.inputs && call.num_outputs == 1;  // the first output
  return is_result && step == chain.steps.end() ? std::optional(steps) : std::nullopt;
}

}  // namespace npu::fusion
