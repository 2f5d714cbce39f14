// The GPUs of this machine.
#pragma once

#include <string>
#include <vector>

#include "core/device.h"

namespace npu {

// Every GPU that works here; called once: what it returns lives as long as the process. `absence` says in words
// what does not work, be it all of CUDA or one device. Throws nothing and prints nothing.
std::vector<Device*> cuda_devices(std::string* absence);

}  // namespace npu
