#include "core/builtin.h"
#include "core/device.h"

namespace npu {
namespace {

struct Found {
  std::vector<Device*> devices{builtin_host()};
  std::string absence;  // why there is no cuda device
};

Found find_all() {
  Found found;
  for (Device* device : builtin_gpus(&found.absence)) found.devices.push_back(device);
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

// The host is compared first: see builtin_host.
Status find_device(const std::string& name, Device** out) {
  if (name == "host") return *out = builtin_host(), Status();
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
  if (type == DeviceType::Host && id == 0) return *out = builtin_host(), Status();
  for (Device* device : devices()) {
    if (device->type() != type || device->id() != id) continue;
    *out = device;
    return {};
  }
  return find_device(type == DeviceType::Host ? "host:" + std::to_string(id) : "cuda:" + std::to_string(id), out);
}

}  // namespace npu
