#include "core/build_info.h"
#include "core/device.h"
#include "host/host_device.h"

#ifdef NPU_WITH_CUDA
#include "cuda/cuda_devices.h"
#endif

namespace npu {
namespace {

struct Found {
  std::vector<Device*> devices{&HostDevice::instance()};
  std::string absence;  // why there is no cuda device
};

Found find_all() {
  Found found;
#ifdef NPU_WITH_CUDA
  for (Device* device : cuda_devices(&found.absence)) found.devices.push_back(device);
#else
  found.absence = std::string("npu-cuda was built without CUDA: ") + build_info().reason;
#endif
  return found;
}

const Found& found() {
  static const Found* const all = new Found(find_all());
  return *all;
}

std::string names() {
  std::string text;
  for (const Device* device : devices()) text += (text.empty() ? "" : ", ") + device->name();
  return text;
}

bool is_cuda(const std::string& name) { return name == "cuda" || name.rfind("cuda:", 0) == 0; }

}  // namespace

const std::vector<Device*>& devices() { return found().devices; }

std::string cuda_absence() { return found().absence; }

// The host is found without a look at CUDA, which takes time, and does not outlive a fork of the process.
Status find_device(const std::string& name, Device** out) {
  if (name == "host") return *out = &HostDevice::instance(), Status();
  for (Device* device : devices()) {
    if (device->name() != name && !(name == "cuda" && device->type() == DeviceType::Cuda)) continue;
    *out = device;
    return {};
  }
  if (is_cuda(name) && !cuda_absence().empty()) {
    return Status::unavailable("device '" + name + "' is not here: " + cuda_absence());
  }
  return Status::invalid("there is no device '" + name + "': there are " + names());
}

Status find_device(DeviceType type, int id, Device** out) {
  if (type == DeviceType::Host && id == 0) return *out = &HostDevice::instance(), Status();
  for (Device* device : devices()) {
    if (device->type() != type || device->id() != id) continue;
    *out = device;
    return {};
  }
  return find_device(type == DeviceType::Host ? "host:" + std::to_string(id) : "cuda:" + std::to_string(id), out);
}

}  // namespace npu
