#include "bindings/launch_record.h"

#include "bindings/tensor_class.h"
#include "bindings/tensors.h"

namespace npu::bindings {

void LaunchRecord::add_home(void* stream) {
  home_ = !has_home_ || home_ == stream ? stream : nullptr;
  has_home_ = true;
}

void LaunchRecord::add(const Owners& owners, const DLPackExchangeAPI* source, const Device& device) {
  if (device.type() == DeviceType::Host) return;
  add_home(current_stream(source, int32_t(device.type()), device.id()));
  if (source && holds_own_tensors(owners)) add_home(device.default_stream());
}

void LaunchRecord::note(Device* device, void* stream, const Owners& owners) {
  check(uses_.note(device, stream));
  note_use(owners, stream, uses_.mark_of(stream));
}

void LaunchRecord::join(const LaunchRecord& other) {
  if (other.has_home_) add_home(other.home_);
}

LaunchRecord LaunchRecord::without_uses() const {
  LaunchRecord record(*this);
  record.uses_ = {};
  return record;
}

}  // namespace npu::bindings
