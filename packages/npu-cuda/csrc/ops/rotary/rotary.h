//   Rotary: cos, sin, x... -> y...
//
// Rotary embedding of the rows of any number of tensors by the same angles (Su et al., RoFormer, 2021), in the order of
// elements of GPT-NeoX: of the first `width` elements of a row, element i and element i + width / 2 are turned as a pair,
//
//   y[i]             = x[i] * cos[i]                         - x[i + width / 2] * sin[i]
//   y[i + width / 2] = x[i + width / 2] * cos[i + width / 2] + x[i] * sin[i + width / 2],
//
// and the others are copied. Each product and each sum is rounded to the dtype, as single ops round them. cos and sin have
// one shape, whose last axis is the width and whose other axes broadcast to those of each x. All tensors have one dtype,
// float64, float32, float16 or bfloat16, and any strides.
#pragma once

#include "core/op_info.h"

namespace npu::rotary {

inline constexpr OpKind kRotary{382};
inline constexpr int kFirst = 2;  // of x among the inputs

struct Operand {
  char* data;
  int64_t strides[NPU_MAX_RANK];  // of the axes of rows, in elements; 0 where it is broadcast
  int64_t column;                 // along a row
};

// One x with its y.
struct Problem {
  int rank;  // axes of rows
  int64_t shape[NPU_MAX_RANK];
  int64_t rows, half, width, size;  // half and width: of what is turned; size: of a row
  Operand x, y, cos, sin;
};

// Whether all tensors are of this dtype, and fit.
Status check(const OpCall& call, DType dtype);
Problem problem_of(const OpCall& call, int item);
Cost cost(const OpCall& call);

std::vector<OpInfo> infos();
std::vector<KernelPtr> host_kernels();
std::vector<KernelPtr> cuda_kernels();

}  // namespace npu::rotary
