// EltwiseRelu: x -> y, y = max(x, 0), elementwise. Any shape, contiguous; y may be x. NaN stays NaN, as in PyTorch.
#pragma once

#include "core/op_info.h"

namespace npu {

inline OpInfo relu_info() {
  return {.kind = OpKind::EltwiseRelu, .name = "EltwiseRelu", .min_inputs = 1, .max_inputs = 1, .num_outputs = 1,
          .in_place = {input_bit(0)}};
}

std::vector<KernelPtr> relu_host_kernels();

// What all kernels of relu take: one dtype, one shape, contiguous.
Status relu_supported(const OpCall& call, DType dtype);

}  // namespace npu
