// Launches that compute bools, int8 and uint8 as bytes where their class would have them as int64.
#pragma once

#include "core/kernel.h"

namespace npu::pointwise {

using LaunchOfBytes = Status (*)(const OpCall& call);

// The launch for the kernel in int64 of an op that has one, else null.
LaunchOfBytes launch_of_bytes(OpKind kind);

}  // namespace npu::pointwise
