#include "ops/rotary/rotary.h"

namespace npu::rotary {
namespace {

int64_t last_of(const TensorDesc& tensor) { return tensor.shape[tensor.rank - 1]; }

Status expect_broadcasts(const TensorDesc& cos, const TensorDesc& x) {
  bool fits = x.rank >= cos.rank && last_of(cos) <= last_of(x);
  for (int axis = 2; fits && axis <= cos.rank; ++axis) {
    const int64_t size = cos.shape[cos.rank - axis];
    fits = size == 1 || size == x.shape[x.rank - axis];
  }
  if (fits) return {};
  return Status::not_implemented("x is " + text_of(x) + ", to whose rows cos, " + text_of(cos) + ", does not broadcast");
}

// A tensor as one of as many axes as x has.
Operand operand_of(const TensorDesc& tensor, const TensorDesc& x) {
  Operand operand{static_cast<char*>(tensor.data), {}, tensor.strides[tensor.rank - 1]};
  for (int axis = 0; axis + 1 < tensor.rank; ++axis) {
    operand.strides[x.rank - tensor.rank + axis] = tensor.shape[axis] == 1 ? 0 : tensor.strides[axis];
  }
  return operand;
}

}  // namespace

Status check(const OpCall& call, DType dtype) {
  const TensorDesc &cos = call.inputs[0], &sin = call.inputs[1];
  NPU_TRY(expect_dtype(cos, dtype, "cos"));
  NPU_TRY(expect_dtype(sin, dtype, "sin"));
  NPU_TRY(expect_same_shape(cos, sin, "cos", "sin"));
  if (cos.rank == 0 || last_of(cos) % 2 != 0) {
    return Status::not_implemented("cos is " + text_of(cos) + ", not rows of an even number of elements");
  }
  for (int item = 0; item < call.num_outputs; ++item) {
    const TensorDesc &x = call.inputs[kFirst + item], &y = call.outputs[item];
    NPU_TRY(expect_dtype(x, dtype, "x"));
    NPU_TRY(expect_dtype(y, dtype, "y"));
    NPU_TRY(expect_same_shape(x, y, "x", "y"));
    NPU_TRY(expect_broadcasts(cos, x));
  }
  return {};
}

Problem problem_of(const OpCall& call, int item) {
  const TensorDesc &cos = call.inputs[0], &x = call.inputs[kFirst + item];
  Problem problem{};
  problem.rank = x.rank - 1;
  std::copy_n(x.shape, problem.rank, problem.shape);
  problem.size = last_of(x);
  problem.rows = problem.size == 0 ? 0 : x.numel / problem.size;
  problem.width = last_of(cos);
  problem.half = problem.width / 2;
  problem.x = operand_of(x, x);
  problem.y = operand_of(call.outputs[item], x);
  problem.cos = operand_of(cos, x);
  problem.sin = operand_of(call.inputs[1], x);
  return problem;
}

Cost cost(const OpCall& call) {
  double flops = 0;
  for (int item = 0; item < call.num_outputs; ++item) flops += 3 * double(call.outputs[item].numel);
  return cost_of(call, flops);
}

std::vector<OpInfo> infos() {
  return {{.kind = kRotary, .name = "Rotary", .min_inputs = 3, .max_inputs = 3, .num_outputs = 1, .input_lists = 1,
           .output_lists = 1}};
}

}  // namespace npu::rotary
