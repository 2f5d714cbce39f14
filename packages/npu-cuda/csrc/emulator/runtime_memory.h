// Memory of the emulated device.
#pragma once

#include "emulator/runtime_state.h"

namespace npu::emulator {

inline constexpr size_t kDeviceBytes = size_t{4} << 30;

size_t live_bytes();

// The allocation that contains an address; end() if there is none.
std::map<const void*, Allocation>::const_iterator find_allocation(const void* address);

// False where a range begins in an allocation and ends outside of it.
bool stays_inside(const void* address, size_t bytes);

}  // namespace npu::emulator
