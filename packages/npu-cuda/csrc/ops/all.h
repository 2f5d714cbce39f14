// The ops and kernels of this build: the one place where an op is listed.
#pragma once

#include <vector>

#include "core/op_info.h"

namespace npu {

std::vector<OpInfo> all_ops();
std::vector<KernelPtr> all_kernels();

}  // namespace npu
