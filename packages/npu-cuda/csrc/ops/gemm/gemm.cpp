#include "ops/gemm/gemm.h"

namespace npu {
namespace {

Status expect_flag(int32_t value, const char* which) {
  if (value == 0 || value == 1) return {};
  return Status::not_implemented(std::string(which) + " is " + std::to_string(value) + ", not 0 or 1");
}

Status expect_matrix(const TensorDesc& tensor, DType dtype, const char* which) {
  NPU_TRY(expect_dtype(tensor, dtype, which));
  if (tensor.rank != 2) {
    return Status::not_implemented(std::string(which) + " has rank " + std::to_string(tensor.rank) + ", not 2");
  }
  return expect_contiguous(tensor, which);
}

Status expect_sizes(const TensorDesc& tensor, int64_t rows, int64_t columns, const char* which) {
  if (tensor.shape[0] == rows && tensor.shape[1] == columns) return {};
  return Status::not_implemented(std::string(which) + " is " + text_of(tensor) + ", not [" + std::to_string(rows) +
                                 ", " + std::to_string(columns) + "]");
}

}  // namespace

OpInfo gemm_info() {
  return {.kind = OpKind::Gemm, .name = "Gemm", .min_inputs = 2, .max_inputs = 3, .num_outputs = 1,
          .in_place = {input_bit(2)},
          .schema = make_schema<GemmAttrs>(
              "GEMM", {field("ta", &GemmAttrs::ta), field("tb", &GemmAttrs::tb),
                       field("precision", &GemmAttrs::precision), field("alpha", &GemmAttrs::alpha),
                       field("beta", &GemmAttrs::beta)})};
}

Status gemm_supported(const OpCall& call, DType dtype) {
  static constexpr const char* names[] = {"A", "B", "C"};
  const GemmAttrs attrs = attrs_of<GemmAttrs>(call);
  NPU_TRY(expect_flag(attrs.ta, "ta"));
  NPU_TRY(expect_flag(attrs.tb, "tb"));
  NPU_TRY(expect_flag(attrs.precision, "precision"));
  for (int i = 0; i < call.num_inputs; ++i) NPU_TRY(expect_matrix(call.inputs[i], dtype, names[i]));
  NPU_TRY(expect_matrix(call.outputs[0], dtype, "D"));
  const GemmSizes sizes = gemm_sizes(call);
  NPU_TRY(expect_sizes(call.inputs[1], attrs.tb ? sizes.n : sizes.k, attrs.tb ? sizes.k : sizes.n, "B"));
  NPU_TRY(expect_sizes(call.outputs[0], sizes.m, sizes.n, "D"));
  if (call.num_inputs == 3) return expect_sizes(call.inputs[2], sizes.m, sizes.n, "C");
  if (attrs.beta == 0) return {};
  return Status::not_implemented("beta is " + std::to_string(attrs.beta) + ", but there is no C");
}

GemmSizes gemm_sizes(const OpCall& call) {
  const GemmAttrs attrs = attrs_of<GemmAttrs>(call);
  return {call.inputs[0].shape[attrs.ta ? 1 : 0], call.inputs[1].shape[attrs.tb ? 0 : 1],
          call.inputs[0].shape[attrs.ta ? 0 : 1]};
}

Cost gemm_cost(const OpCall& call) {
  const GemmSizes sizes = gemm_sizes(call);
  return cost_of(call, 2.0 * double(sizes.m) * double(sizes.n) * double(sizes.k));
}

}  // namespace npu
