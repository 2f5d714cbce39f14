#include "ops/add/add.h"

namespace npu {

OpInfo add_info() {
  return {.kind = OpKind::EltwiseAdd, .name = "EltwiseAdd", .min_inputs = 2, .max_inputs = 2, .num_outputs = 1,
          .in_place = {input_bit(0) | input_bit(1)},
          .schema = make_schema<AddAttrs>("EADD", {field("alpha", &AddAttrs::alpha)})};
}

Status add_supported(const OpCall& call, DType dtype) {
  const TensorDesc &a = call.inputs[0], &b = call.inputs[1], &y = call.outputs[0];
  NPU_TRY(expect_dtype(a, dtype, "a"));
  NPU_TRY(expect_dtype(b, dtype, "b"));
  NPU_TRY(expect_dtype(y, dtype, "y"));
  NPU_TRY(expect_same_shape(a, b, "a", "b"));
  NPU_TRY(expect_same_shape(a, y, "a", "y"));
  NPU_TRY(expect_contiguous(a, "a"));
  NPU_TRY(expect_contiguous(b, "b"));
  return expect_contiguous(y, "y");
}

Cost add_cost(const OpCall& call) {
  const double flops_per_item = attrs_of<AddAttrs>(call).alpha == 1 ? 1 : 2;
  return cost_of(call, flops_per_item * double(call.outputs[0].numel));
}

}  // namespace npu
