#include "ops/copy/copy.h"

#include <bit>

namespace npu {

OpInfo copy_info() {
  return {.kind = OpKind::Copy, .name = "Copy", .min_inputs = 1, .max_inputs = 1, .num_outputs = 1};
}

Status copy_supported(const OpCall& call) {
  const TensorDesc &x = call.inputs[0], &y = call.outputs[0];
  NPU_TRY(expect_dtype(y, x.dtype, "y"));
  NPU_TRY(expect_same_shape(x, y, "x", "y"));
  const int bits = x.dtype.bits * x.dtype.lanes;
  if (bits % 8 == 0 && bits <= 128 && std::has_single_bit(unsigned(bits))) return {};
  return Status::not_implemented("items of " + name_of(x.dtype) + " have " + std::to_string(bits) +
                                 " bits, not 8, 16, 32, 64 or 128");
}

Status cast_supported(const OpCall& call, DType from, DType to) {
  NPU_TRY(expect_dtype(call.inputs[0], from, "x"));
  NPU_TRY(expect_dtype(call.outputs[0], to, "y"));
  return expect_same_shape(call.inputs[0], call.outputs[0], "x", "y");
}

Cost copy_cost(const OpCall& call) { return cost_of(call, 0); }

}  // namespace npu
