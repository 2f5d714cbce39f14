#include "ops/reduce/cumsum.h"

#include "ops/reduce/reduce.h"

namespace npu::reduce {

OpInfo cumsum_info() {
  return {.kind = Cumsum::row.kind, .name = "Cumsum", .min_inputs = 1, .max_inputs = 1, .num_outputs = 1,
          .in_place = {input_bit(0)}, .schema = make_schema<Cumsum>("CSUM", Cumsum::fields())};
}

Status check_cumsum(Class type, const OpCall& call) {
  const TensorDesc &x = call.inputs[0], &y = call.outputs[0];
  const int64_t axis = attrs_of<Cumsum>(call).axis, rank = std::max(x.rank, 1);
  if (axis < -rank || axis >= rank) {
    return Status::not_implemented("axis is " + std::to_string(axis) + ", which x of " +
                                   std::to_string(x.rank) +
                                   " axes does not have");
  }
  NPU_TRY(pointwise::check_dtypes(Cumsum::row, type, call));
  NPU_TRY(expect_same_shape(x, y, "x", "y"));
  const auto is_real = [](DType dtype) {
    return dtype.code == npu::kFloat32.code || dtype.code == kBFloat16.code;
  };
  const bool is_bool = pointwise::element_of(y.dtype) == pointwise::Element::Bool;
  if (is_real(y.dtype) || (!is_real(x.dtype) && !is_bool)) return {};
  return Status::not_implemented("Cumsum has no result of " + name_of(y.dtype) + " for " + name_of(x.dtype));
}

}  // namespace npu::reduce
