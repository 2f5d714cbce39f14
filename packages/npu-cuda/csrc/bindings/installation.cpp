#include "bindings/installation.h"

#include <nanobind/stl/string.h>

#include "core/build_info.h"
#include "core/device.h"

namespace nb = nanobind;

namespace npu::bindings {
namespace {

nb::dict build_info_dict() {
  const BuildInfo& info = build_info();
  nb::dict out;
  out["version"] = info.version;
  out["mode"] = info.mode;
  out["requested"] = info.requested;
  out["reason"] = info.reason;
  out["architectures"] = info.architectures;
  out["cuda_version"] = info.cuda_version;
  out["cuda_compiler"] = info.cuda_compiler;
  out["cudart"] = info.cudart;
  out["compiler"] = info.compiler;
  out["nanobind"] = info.nanobind;
  out["build_type"] = info.build_type;
  out["sanitizer"] = info.sanitizer;
  return out;
}

nb::list device_dicts() {
  nb::list out;
  for (const Device* device : devices()) {
    nb::dict row;
    row["name"] = device->name();
    row["description"] = device->description();
    row["compute_capability"] = device->compute_capability();
    out.append(row);
  }
  return out;
}

}  // namespace

void bind_installation(nb::module_& module) {
  module.def("build_info", &build_info_dict, nb::sig("def build_info() -> dict[str, str]"),
             "How this library was built; what does not apply is empty.");
  module.def("devices", &device_dicts, nb::sig("def devices() -> list[dict[str, Any]]"),
             "The devices that work here, the host first.");
  module.def("cuda_absence", &cuda_absence, "Why there is no CUDA device; empty if there is one.");
}

}  // namespace npu::bindings
