// EltwiseRelu: x -> y, y = max(x, 0), elementwise. f32, f16, bf16; any shape, contiguous; y may be x. NaN stays NaN,
// and -0.0 stays -0.0, as in PyTorch.
#pragma once

#include "core/op_info.h"

namespace npu {

OpInfo relu_info();
// What all kernels of relu take: one dtype, one shape, contiguous.
Status relu_supported(const OpCall& call, DType dtype);
Cost relu_cost(const OpCall& call);

std::vector<KernelPtr> relu_host_kernels();
std::vector<KernelPtr> relu_cuda_kernels();

}  // namespace npu
