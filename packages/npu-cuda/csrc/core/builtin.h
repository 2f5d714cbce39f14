// The ops, kernels and devices of this build, as the core asks for them. They are defined in builtin/, which stands above
// the core, the devices and the ops, and is the one place where an op or a device is listed.
#pragma once

#include <string>
#include <vector>

#include "core/device.h"
#include "core/op_info.h"

namespace npu {

std::vector<OpInfo> builtin_ops();
std::vector<KernelPtr> builtin_kernels();

// The host. It is found without a look at CUDA, which takes time, and does not outlive a fork of the process.
Device* builtin_host();

// The GPUs that work here. `absence` says why there are none, or which of them are left out.
std::vector<Device*> builtin_gpus(std::string* absence);

}  // namespace npu
