// The Python module npu_cuda._C.
#include <nanobind/nanobind.h>

#include "core/build_info.h"

namespace nb = nanobind;

namespace {

nb::dict build_info_dict() {
  const npu::BuildInfo& info = npu::build_info();
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

}  // namespace

NB_MODULE(_C, module) {
  module.doc() = "The native part of npu_cuda.";
  module.def("build_info", &build_info_dict, "How this library was built.");
}
