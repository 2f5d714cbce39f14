// Queries from Python about this build and this machine.
#pragma once

#include <nanobind/nanobind.h>

namespace npu::bindings {

// build_info(), devices(), cuda_absence().
void bind_installation(nanobind::module_& module);

}  // namespace npu::bindings
