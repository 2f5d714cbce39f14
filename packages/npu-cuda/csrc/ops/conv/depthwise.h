// Kernels of their own: convolutions with one input and one output in each group, and gradients of weights.
#pragma once

#include "ops/conv/conv.h"

namespace npu::conv {

KernelPtr depthwise_kernel();
KernelPtr weight_gradient_kernel();

}  // namespace npu::conv
