// ActiveDevice: makes a device that of the calling thread until the end of a block, where there is such a thing. For work
// that is not a method of Device, such as preparing a kernel; those do so by themselves.
#pragma once

#include "core/device.h"

namespace npu {

class ActiveDevice {
 public:
  ActiveDevice() = default;
  ActiveDevice(const ActiveDevice&) = delete;
  ActiveDevice& operator=(const ActiveDevice&) = delete;
  ~ActiveDevice() {
    if (device_) device_->deactivate(before_);
  }
  Status set(Device* device) {
    NPU_TRY(device->activate(&before_));
    return device_ = device, Status();
  }

 private:
  Device* device_ = nullptr;
  int before_ = 0;
};

}  // namespace npu
