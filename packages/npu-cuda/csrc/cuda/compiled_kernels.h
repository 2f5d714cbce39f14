// Kernels that are compiled at run time, from text: once per process, architecture and text, and once per machine, as a
// file in the folder NPU_CUDA_CACHE ("off": none), else npu-cuda in XDG_CACHE_HOME or ~/.cache.
#pragma once

#include <string>

#include "core/status.h"

namespace npu {

// NotImplemented with the reason where nothing can be compiled here.
Status can_compile_kernels();

// Finds, or compiles and loads, the function `name` of a text. It is loaded on the current device, of this capability, and
// stays as long as the process. Harmless in a capture.
Status compiled_kernel(const std::string& text, const char* name, int capability, const void** kernel);

// The folder of the files; empty where there is none.
std::string compiled_kernel_folder();

}  // namespace npu
