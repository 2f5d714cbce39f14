// Gemm: A, B[, C] -> D, D = alpha * op(A) op(B) + beta * C, where op exchanges the last two axes if ta (tb) is 1.
// op(A) is [..., m, k], op(B) [..., k, n], D [..., m, n]; the axes before broadcast, and C broadcasts to D; any strides.
// A and B are of one dtype: f32, f64, or f16 or bf16, whose sums are f32; D is of it, or f32, and C of either. D may be
// C. As in BLAS C is not read where beta is 0, and without C beta must be 0; k = 0 gives beta * C, or zeros. precision 0
// demands f32 throughout; 1 permits tf32 products, and f32 kernels support both.
#pragma once

#include <span>

#include "core/op_info.h"
#include "ops/pointwise/elements.h"

namespace npu {

struct GemmAttrs {
  int32_t ta = 0;
  int32_t tb = 0;
  int32_t precision = 0;
  float alpha = 1;
  float beta = 0;
};

namespace gemm {

using pointwise::Element;

// A tensor as matrices: strides in elements, 0 along axes that it is broadcast along.
struct Operand {
  void* data;
  Element element;
  int64_t row, column;
  int64_t batch[NPU_MAX_RANK];

  Operand transposed() const;
};

// A call as products of matrices, with as few axes before them as there can be.
struct Problem {
  int64_t m, n, k;
  int batch_rank;
  int64_t batch_shape[NPU_MAX_RANK];
  int64_t items;  // the product of it
  Operand a, b, c, d;
  bool has_c;
  float alpha, beta;

  // The first element of a matrix.
  int64_t offset(const Operand& operand, int64_t item) const;
  // Returns the same product with rows and columns exchanged.
  Problem transposed() const;
};

// The last two axes as they are, the others along those of `like`.
Operand operand_of(const TensorDesc& tensor, const TensorDesc& like);
// Returns the operand of a tensor that broadcasts to `like`, also along the last two axes.
Operand broadcast_operand(const TensorDesc& tensor, const TensorDesc& like);
// Makes axes before the matrices part of their rows where all operands, `others` too, have these in order, and B is the
// same for all.
void join_rows(Problem* problem, std::span<const Operand> others = {});

// The elements of a matrix, "[..., 5, 6]", or the reason why the tensor has others.
Status expect_matrix(const TensorDesc& tensor, int64_t rows, int64_t columns, const char* which);
// Whether the axes of a tensor before its last two broadcast to those of another.
Status expect_batch(const TensorDesc& tensor, const TensorDesc& like, const char* which);
// Checks that A is a matrix of floats; other operands are compared with its dtype.
Status expect_float(const TensorDesc& tensor, const char* which);
Status expect_either(const TensorDesc& tensor, DType dtype, const char* which);

// Returns the problem of a call that gemm_supported takes.
Problem problem_of(const OpCall& call);
Status gemm_supported(const OpCall& call);

}  // namespace gemm

OpInfo gemm_info();
Cost gemm_cost(const OpCall& call);
std::vector<KernelPtr> gemm_host_kernels();
std::vector<KernelPtr> gemm_cuda_kernels();

}  // namespace npu
