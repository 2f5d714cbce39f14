// QuantizedGemm: A, Q, S[, bias] -> D, D = A W^T + bias, where the rows of W are integers of 8 or 4 bits times scales.
// A is [..., m, k] and D [..., m, n], with any strides; axes before the rows broadcast. Q has the integers of W, [n, k]
// of int8; or of 4 bits [n, k / 2] of uint8: a byte, as a signed number, is 16 * odd + even of an integer at an even
// place, from -8 to 7, and the next one. S is f32 [n, groups]: a group of k / groups integers of a row has a scale in
// common. Q and S are contiguous. A is f32, f16 or bf16, bias [n] is of that dtype, D of it or f32; sums are f32.
//
// DynamicQuantizedGemm: the same, where rows of A are rounded to integers as they come. A group of a row of A, which is
// as those of W, is cut into blocks of `block` elements, the last of which may be shorter. A block has a scale, amax / 127
// in f32, and integers: the quotients by it, to nearest, ties to even, from -127 to 127. Sums of their products with those
// of W are exact for each block. A block of zeros has the scale 0; one with NaN or an infinity makes its row of D NaN.
#pragma once

#include "core/op_info.h"
#include "ops/gemm/gemm.h"

namespace npu::quantized {

inline constexpr OpKind kQuantizedGemm{362}, kDynamicQuantizedGemm{363};
// So many products of integers of 8 bits have a sum of less than 2^24, which float32 has exactly.
inline constexpr int32_t kMostOfBlock = 1024;

struct DynamicAttrs {
  int32_t block = 32;
};

// A call as a product of rows.
struct Problem {
  gemm::Problem product;  // of A and D; its b is not meant
  const uint8_t* integers;
  const float* scales;
  gemm::Operand bias;  // no data: there is none
  int64_t groups, group;     // their number, and the integers of one
  bool is_packed;            // two integers in a byte

  int64_t rows() const { return product.m * product.items; }
  int64_t row_bytes() const { return is_packed ? product.k / 2 : product.k; }
  // Where a row of A or D begins, in elements.
  int64_t offset_of_row(const gemm::Operand& operand, int64_t row) const {
    return product.offset(operand, row / product.m) + row % product.m * operand.row;
  }
};

Status supported(const OpCall& call);
Status dynamic_supported(const OpCall& call);
Problem problem_of(const OpCall& call);
Cost cost(const OpCall& call);

std::vector<OpInfo> infos();
std::vector<KernelPtr> host_kernels();
std::vector<KernelPtr> dynamic_host_kernels();
std::vector<KernelPtr> cuda_kernels();

}  // namespace npu::quantized
