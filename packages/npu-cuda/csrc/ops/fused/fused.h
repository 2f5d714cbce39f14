// Fused: several pointwise ops over one iteration space in one pass over memory. On the host only: elsewhere the
// ops are launched one by one.
#pragma once

#include "core/op_info.h"

namespace npu {

OpInfo fused_info();
std::vector<KernelPtr> fused_host_kernels();

}  // namespace npu
