#include "ops/quantized/quantized.h"

namespace npu::quantized {
namespace {

constexpr DType kInt8{0, 8, 1}, kUInt8{1, 8, 1};

int64_t columns_of(const TensorDesc& tensor) { return tensor.shape[tensor.rank - 1]; }

Status expect_weight(const TensorDesc& q, int64_t n, int64_t k) {
  const bool is_packed = q.dtype == kUInt8;
  if (!is_packed && q.dtype != kInt8) {
    return Status::not_implemented("Q is " + name_of(q.dtype) + ", neither int8 nor uint8");
  }
  NPU_TRY(expect_contiguous(q, "Q"));
  const int64_t columns = is_packed ? k / 2 : k;
  if (q.rank == 2 && q.shape[0] == n && q.shape[1] == columns && (!is_packed || k % 2 == 0)) return {};
  return Status::not_implemented("Q is " + text_of(q) + ", not the integers of [" + std::to_string(n) + ", " +
                                 std::to_string(k) + "]");
}

Status expect_scales(const TensorDesc& s, int64_t n, int64_t k, bool is_packed) {
  NPU_TRY(expect_dtype(s, kFloat32, "S"));
  NPU_TRY(expect_contiguous(s, "S"));
  const int64_t groups = s.rank == 2 ? s.shape[1] : 0;
  if (s.rank != 2 || s.shape[0] != n || (k > 0 && (groups == 0 || k % groups != 0))) {
    return Status::not_implemented("S is " + text_of(s) + ", not the scales of [" + std::to_string(n) + ", " +
                                   std::to_string(k) + "]");
  }
  if (!is_packed || k == 0 || k / groups % 2 == 0) return {};
  return Status::not_implemented("groups of 4 bits have " + std::to_string(k / groups) + " integers, an odd number");
}

}  // namespace

Status supported(const OpCall& call) {
  const TensorDesc &a = call.inputs[0], &q = call.inputs[1], &d = call.outputs[0];
  NPU_TRY(gemm::expect_float(a, "A"));
  if (a.dtype.bits == 64) return Status::not_implemented("A is float64, not a float of 32 or 16 bits");
  if (d.rank < 2) return Status::not_implemented("D has rank " + std::to_string(d.rank) + ", less than 2");
  NPU_TRY(gemm::expect_either(d, a.dtype, "D"));
  const int64_t n = columns_of(d), k = columns_of(a);
  NPU_TRY(expect_weight(q, n, k));
  NPU_TRY(expect_scales(call.inputs[2], n, k, q.dtype == kUInt8));
  NPU_TRY(gemm::expect_matrix(d, a.shape[a.rank - 2], n, "D"));
  NPU_TRY(gemm::expect_batch(a, d, "A"));
  if (call.num_inputs < 4) return {};
  const TensorDesc& bias = call.inputs[3];
  NPU_TRY(expect_dtype(bias, a.dtype, "bias"));
  return bias.rank == 1 && bias.shape[0] == n ? Status() : other_shape(bias, d, "bias", "a row of D");
}

Status dynamic_supported(const OpCall& call) {
  NPU_TRY(supported(call));
  const int64_t block = attrs_of<DynamicAttrs>(call).block, group = problem_of(call).group;
  if (block < 1 || block > kMostOfBlock) {
    return Status::not_implemented("blocks have " + std::to_string(block) + " elements, not 1 to " +
                                   std::to_string(kMostOfBlock));
  }
  if (call.inputs[1].dtype != kUInt8 || block % 2 == 0 || block >= group) return {};
  return Status::not_implemented("blocks have " + std::to_string(block) + " elements, and a byte has two of 4 bits");
}

Problem problem_of(const OpCall& call) {
  const TensorDesc &a = call.inputs[0], &q = call.inputs[1], &d = call.outputs[0];
  Problem problem{};
  gemm::Problem& product = problem.product;
  product.m = d.shape[d.rank - 2];
  product.n = columns_of(d);
  product.k = columns_of(a);
  product.a = gemm::operand_of(a, d);
  product.d = gemm::operand_of(d, d);
  product.alpha = 1;
  product.batch_rank = d.rank - 2;
  std::copy_n(d.shape, product.batch_rank, product.batch_shape);
  gemm::join_rows(&product);
  problem.integers = static_cast<const uint8_t*>(q.data);
  problem.scales = static_cast<const float*>(call.inputs[2].data);
  problem.groups = call.inputs[2].shape[1];
  problem.group = problem.groups > 0 ? product.k / problem.groups : 0;
  problem.is_packed = q.dtype == kUInt8;
  if (call.num_inputs == 4) problem.bias = gemm::broadcast_operand(call.inputs[3], d);
  return problem;
}

Cost cost(const OpCall& call) {
  return cost_of(call, 2.0 * double(call.outputs[0].numel) * double(columns_of(call.inputs[0])));
}

std::vector<OpInfo> infos() {
  return {{.kind = kQuantizedGemm, .name = "QuantizedGemm", .min_inputs = 3, .max_inputs = 4, .num_outputs = 1},
          {.kind = kDynamicQuantizedGemm, .name = "DynamicQuantizedGemm", .min_inputs = 3, .max_inputs = 4, .num_outputs = 1,
           .schema = make_schema<DynamicAttrs>("DQGM", {field("block", &DynamicAttrs::block)})}};
}

}  // namespace npu::quantized
