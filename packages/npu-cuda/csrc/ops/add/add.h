// EltwiseAdd: a, b -> y, y = a + alpha * b, elementwise, computed in f32 with one rounding (a fused multiply-add) and,
// for f16 and bf16, one more to the dtype. One dtype, one shape (no broadcasting), contiguous; y may be a or b.
#pragma once

#include "core/op_info.h"

namespace npu {

struct AddAttrs {
  float alpha = 1;
};

OpInfo add_info();
// What all kernels of add take.
Status add_supported(const OpCall& call, DType dtype);
Cost add_cost(const OpCall& call);

std::vector<KernelPtr> add_host_kernels();
std::vector<KernelPtr> add_cuda_kernels();

}  // namespace npu
