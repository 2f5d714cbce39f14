// Copy: x -> y, element by element. One shape, rank up to 8, any strides (of x also 0); every dtype whose items have
// 1, 2, 4, 8 or 16 bytes. Both have one dtype, or two of f32, f16 and bf16: then values are rounded to nearest, ties to
// even, and NaN stays NaN.
#pragma once

#include "core/op_info.h"

namespace npu {

OpInfo copy_info();
// What kernels take that move items as they are.
Status copy_supported(const OpCall& call);
// What kernels take that convert.
Status cast_supported(const OpCall& call, DType from, DType to);
Cost copy_cost(const OpCall& call);

std::vector<KernelPtr> copy_host_kernels();
std::vector<KernelPtr> copy_cuda_kernels();

}  // namespace npu
