#include "ops/gemm/gemm.h"

#include <algorithm>
#include <utility>

#include "ops/pointwise/nest.h"

namespace npu {
namespace gemm {
namespace {

Status expect_flag(int32_t value, const char* which) {
  if (value == 0 || value == 1) return {};
  return Status::not_implemented(std::string(which) + " is " + std::to_string(value) + ", not 0 or 1");
}

[[gnu::cold]] Status no_matrix(const TensorDesc& tensor, const char* which) {
  return Status::not_implemented(std::string(which) + " has rank " + std::to_string(tensor.rank) + ", less than 2");
}

int64_t rows_of(const TensorDesc& tensor) { return tensor.shape[tensor.rank - 2]; }
int64_t columns_of(const TensorDesc& tensor) { return tensor.shape[tensor.rank - 1]; }

// Joins the last axis before the matrices to their rows.
bool join_one(Problem* problem, std::span<const Operand> others) {
  const int axis = problem->batch_rank - 1;
  const auto continues = [&](const Operand& operand) { return operand.batch[axis] == operand.row * problem->m; };
  const bool is_joined = problem->b.batch[axis] == 0 && continues(problem->a) && continues(problem->d) &&
                         (!problem->has_c || continues(problem->c)) && std::ranges::all_of(others, continues);
  if (!is_joined) return false;
  problem->m *= problem->batch_shape[axis];
  problem->batch_rank = axis;
  return true;
}

}  // namespace

Operand Operand::transposed() const {
  Operand other = *this;
  std::swap(other.row, other.column);
  return other;
}

int64_t Problem::offset(const Operand& operand, int64_t item) const {
  int64_t offset = 0;
  for (int axis = batch_rank - 1; axis >= 0; --axis) {
    offset += item % batch_shape[axis] * operand.batch[axis];
    item /= batch_shape[axis];
  }
  return offset;
}

Problem Problem::transposed() const {
  Problem other = *this;
  std::swap(other.m, other.n);
  other.a = b.transposed();
  other.b = a.transposed();
  other.c = c.transposed();
  other.d = d.transposed();
  return other;
}

Operand broadcast_operand(const TensorDesc& tensor, const TensorDesc& like) {
  Operand operand{tensor.data, pointwise::element_of(tensor.dtype), 0, 0, {}};
  // Also of an axis of one element, which may be joined with others.
  const auto stride = [&](int axis) {
    const int own = axis - (like.rank - tensor.rank);
    return own < 0 || tensor.shape[own] != like.shape[axis] ? 0 : tensor.strides[own];
  };
  operand.row = stride(like.rank - 2);
  operand.column = stride(like.rank - 1);
  for (int axis = 0; axis < like.rank - 2; ++axis) operand.batch[axis] = stride(axis);
  return operand;
}

Operand operand_of(const TensorDesc& tensor, const TensorDesc& like) {
  Operand operand = broadcast_operand(tensor, like);
  operand.row = tensor.strides[tensor.rank - 2];
  operand.column = tensor.strides[tensor.rank - 1];
  return operand;
}

void join_rows(Problem* problem, std::span<const Operand> others) {
  while (problem->batch_rank > 0 && join_one(problem, others)) {}
  problem->items = 1;
  for (int axis = 0; axis < problem->batch_rank; ++axis) problem->items *= problem->batch_shape[axis];
}

Problem problem_of(const OpCall& call) {
  const GemmAttrs attrs = attrs_of<GemmAttrs>(call);
  const TensorDesc& d = call.outputs[0];
  Problem problem{};
  problem.a = operand_of(call.inputs[0], d);
  problem.b = operand_of(call.inputs[1], d);
  problem.d = operand_of(d, d);
  problem.k = attrs.ta ? rows_of(call.inputs[0]) : columns_of(call.inputs[0]);
  if (attrs.ta) problem.a = problem.a.transposed();
  if (attrs.tb) problem.b = problem.b.transposed();
  problem.m = rows_of(d);
  problem.n = columns_of(d);
  problem.alpha = attrs.alpha;
  problem.beta = attrs.beta;
  problem.has_c = attrs.beta != 0;
  if (problem.has_c) problem.c = broadcast_operand(call.inputs[2], d);
  problem.batch_rank = d.rank - 2;
  std::copy_n(d.shape, problem.batch_rank, problem.batch_shape);
  join_rows(&problem);
  return problem;
}

Status expect_matrix(const TensorDesc& tensor, int64_t rows, int64_t columns, const char* which) {
  if (rows_of(tensor) == rows && columns_of(tensor) == columns) return {};
  return Status::not_implemented(std::string(which) + " is " + text_of(tensor) + ", not [" +
                                 (tensor.rank > 2 ? "..., " : "") + std::to_string(rows) + ", " +
                                 std::to_string(columns) + "]");
}

Status expect_batch(const TensorDesc& tensor, const TensorDesc& like, const char* which) {
  bool broadcasts = tensor.rank <= like.rank;
  for (int axis = 0; broadcasts && axis < tensor.rank - 2; ++axis) {
    broadcasts = tensor.shape[axis] == 1 || tensor.shape[axis] == like.shape[axis + like.rank - tensor.rank];
  }
  return broadcasts ? Status() : other_shape(tensor, like, which, "D, to which it broadcasts,");
}

Status expect_float(const TensorDesc& tensor, const char* which) {
  switch (pointwise::element_of(tensor.dtype)) {
    case Element::Float32: case Element::Float16: case Element::BFloat16: case Element::Float64: break;
    default: return Status::not_implemented(std::string(which) + " is " + name_of(tensor.dtype) + ", not a float");
  }
  return tensor.rank >= 2 ? Status() : no_matrix(tensor, which);
}

Status expect_either(const TensorDesc& tensor, DType dtype, const char* which) {
  return tensor.dtype == kFloat32 && dtype.bits == 16 ? Status() : expect_dtype(tensor, dtype, which);
}

Status gemm_supported(const OpCall& call) {
  const GemmAttrs attrs = attrs_of<GemmAttrs>(call);
  NPU_TRY(expect_flag(attrs.ta, "ta"));
  NPU_TRY(expect_flag(attrs.tb, "tb"));
  NPU_TRY(expect_flag(attrs.precision, "precision"));
  const TensorDesc &a = call.inputs[0], &b = call.inputs[1], &d = call.outputs[0];
  NPU_TRY(expect_float(a, "A"));
  NPU_TRY(expect_dtype(b, a.dtype, "B"));
  NPU_TRY(expect_either(d, a.dtype, "D"));
  if (b.rank < 2) return no_matrix(b, "B");
  if (d.rank < 2) return no_matrix(d, "D");
  const int64_t m = attrs.ta ? columns_of(a) : rows_of(a), k = attrs.ta ? rows_of(a) : columns_of(a);
  const int64_t n = attrs.tb ? rows_of(b) : columns_of(b);
  NPU_TRY(expect_matrix(b, attrs.tb ? n : k, attrs.tb ? k : n, "B"));
  NPU_TRY(expect_matrix(d, m, n, "D"));
  NPU_TRY(expect_batch(a, d, "A"));
  NPU_TRY(expect_batch(b, d, "B"));
  if (call.num_inputs == 3) {
    NPU_TRY(expect_either(call.inputs[2], call.inputs[2].dtype == d.dtype ? d.dtype : a.dtype, "C"));
    OpCall addition = call;
    addition.inputs += 2;
    addition.num_inputs = 1;
    return pointwise::check_shapes(addition).at([] { return std::string("C"); });
  }
  if (attrs.beta == 0) return {};
  return Status::not_implemented("beta is " + std::to_string(attrs.beta) + ", but there is no C");
}

}  // namespace gemm

OpInfo gemm_info() {
  return {.kind = OpKind::Gemm, .name = "Gemm", .min_inputs = 2, .max_inputs = 3, .num_outputs = 1,
          .in_place = {input_bit(2)},
          .schema = make_schema<GemmAttrs>(
              "GEMM", {field("ta", &GemmAttrs::ta), field("tb", &GemmAttrs::tb),
                       field("precision", &GemmAttrs::precision), field("alpha", &GemmAttrs::alpha),
                       field("beta", &GemmAttrs::beta)})};
}

Cost gemm_cost(const OpCall& call) {
  const TensorDesc& a = call.inputs[0];
  const int64_t k = a.shape[a.rank - (attrs_of<GemmAttrs>(call).ta ? 2 : 1)];
  return cost_of(call, 2.0 * double(call.outputs[0].numel) * double(k));
}

}  // namespace npu
