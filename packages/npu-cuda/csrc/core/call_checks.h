// The checks of every call before a kernel is selected: counts, devices, pointers, overlaps, attributes.
#pragma once

#include <string>

#include "core/op_info.h"

namespace npu {

// InvalidArgument says which tensor is wrong. `pointers`: memory is known, and is checked, too.
Status check_call(const OpInfo& op, const OpCall& call, bool pointers);

// "(float32[2, 3], float32[3]) -> float32[2, 3]"
std::string text_of(const OpCall& call);

}  // namespace npu
