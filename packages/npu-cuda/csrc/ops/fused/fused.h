// Fused: several pointwise ops over one iteration space in one pass over memory. On the host their compiled kernels run
// block by block; on the GPU one kernel is compiled at run time, where there is NVRTC.
#pragma once

#include "core/op_info.h"

namespace npu {

inline constexpr OpKind kFused{340};

OpInfo fused_info();
std::vector<KernelPtr> fused_host_kernels();
std::vector<KernelPtr> fused_cuda_kernels();

}  // namespace npu
