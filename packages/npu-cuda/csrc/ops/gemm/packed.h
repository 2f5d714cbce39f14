// Products by a matrix that is packed once, on the host only.
//
// PackMatrix: B -> P, where B is [..., k, n], with any strides, and P [..., panels, k, width]: panel i has the columns
// of B from i * width on, and 0 beyond the last one. Of 16, 32 and 64 the least width that holds n, or else 64, is right
// for every processor.
//
// PackedGemm: A, P[, bias][, more] -> D[, more], where A is [..., m, k], D [..., m, n], and axes before them broadcast;
// bias is [n]. Dtypes are as in Gemm. Without steps D is A B + bias. Steps, which are those of a Fused op
// (ops/fused/payload.h) after has_bias, compute the outputs from tensor 0, which is A B + bias in the dtype of A, and
// from `more`, to the bit as the ops one by one.
#pragma once

#include "core/op_info.h"

namespace npu {

std::vector<OpInfo> packed_gemm_infos();
std::vector<KernelPtr> packed_gemm_host_kernels();

}  // namespace npu
