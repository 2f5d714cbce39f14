// The build of this library, for people and for tests. The presence of a device is a separate question: cuda_absence().
#pragma once

namespace npu {

// Text that does not apply is empty.
struct BuildInfo {
  const char* version;
  const char* mode;           // ON, OFF or EMULATE: whether the CUDA kernels are in here
  const char* requested;      // NPU_CUDA as it was given: AUTO, too
  const char* reason;         // why `mode` is not ON: "nvcc was not found: ..."
  const char* architectures;  // "80-real 90-real 90-virtual"
  const char* cuda_version;   // "13.0": of the toolkit
  const char* cuda_compiler;  // "nvcc 13.0.88"
  const char* cudart;         // "static 13.0.96", "emulated"
  const char* compiler;       // "GNU 12.2.0"
  const char* nanobind;       // "3.1.0, split"
  const char* build_type;     // "Release"
  const char* sanitizer;      // "address"
};

const BuildInfo& build_info();

}  // namespace npu
