// Kernels of their own: convolutions with one input and one output in each group, those by Winograd's algorithm, and
// gradients of weights.
#pragma once

#include "ops/conv/conv.h"

namespace npu::conv {

std::vector<KernelPtr> depthwise_kernels();
KernelPtr winograd_kernel();
KernelPtr weight_gradient_kernel();

}  // namespace npu::conv
