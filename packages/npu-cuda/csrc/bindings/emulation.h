// The controls of the emulator as functions _C.emulator_..., in builds that emulate CUDA; absent in others.
#pragma once

#include <nanobind/nanobind.h>

namespace npu::bindings {

void bind_emulation(nanobind::module_& module);

}  // namespace npu::bindings
