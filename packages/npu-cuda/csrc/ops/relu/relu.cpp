#include "ops/relu/relu.h"

namespace npu {

OpInfo relu_info() {
  return {.kind = OpKind::EltwiseRelu, .name = "EltwiseRelu", .min_inputs = 1, .max_inputs = 1, .num_outputs = 1,
          .in_place = {input_bit(0)}};
}

Status relu_supported(const OpCall& call, DType dtype) {
  NPU_TRY(expect_dtype(call.inputs[0], dtype, "x"));
  NPU_TRY(expect_dtype(call.outputs[0], dtype, "y"));
  NPU_TRY(expect_same_shape(call.inputs[0], call.outputs[0], "x", "y"));
  NPU_TRY(expect_contiguous(call.inputs[0], "x"));
  return expect_contiguous(call.outputs[0], "y");
}

Cost relu_cost(const OpCall& call) { return cost_of(call, double(call.outputs[0].numel)); }

}  // namespace npu
