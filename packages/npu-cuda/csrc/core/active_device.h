// ActiveDevice: makes a device the current one of the thread until the end of a block, if devices have that notion. For
// work outside of the methods of Device, such as preparing a kernel; these methods do so themselves.
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
