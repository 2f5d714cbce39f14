// Gemm: A, B[, C] -> D, D = alpha * op(A) op(B) + beta * C, where op transposes if ta (tb) is 1. op(A) is [m, k],
// op(B) [k, n], C and D [m, n]; f32, rank 2, row-major contiguous; D may be C. As in BLAS C is not read where beta is
// 0, and without C beta must be 0; k = 0 gives beta * C, or zeros. precision 0 demands f32 throughout; 1 permits tf32
// products, and f32 kernels support both.
#pragma once

#include "core/op_info.h"

namespace npu {

struct GemmAttrs {
  int32_t ta = 0;
  int32_t tb = 0;
  int32_t precision = 0;
  float alpha = 1;
  float beta = 0;
};

struct GemmSizes {
  int64_t m, n, k;
};

OpInfo gemm_info();
// What all kernels of gemm take that compute in f32 throughout.
Status gemm_supported(const OpCall& call, DType dtype);
GemmSizes gemm_sizes(const OpCall& call);
Cost gemm_cost(const OpCall& call);

std::vector<KernelPtr> gemm_host_kernels();
std::vector<KernelPtr> gemm_cuda_kernels();

}  // namespace npu
