#include "cuda/cuda_status.h"

#include <string>

#ifdef NPU_EMULATE
#include "emulator/emulator_control.h"
#endif

namespace npu {

Status cuda_status(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return {};
  std::string text = std::string(what) + ": " + cudaGetErrorName(error) + " (" +
                     std::to_string(static_cast<int>(error)) + "): " + cudaGetErrorString(error);
#ifdef NPU_EMULATE
  const std::string report = npu_emulator_last_report();
  if (error == cudaErrorLaunchFailure && !report.empty()) text += ": " + report;
#endif
  return Status::device_error(std::move(text));
}

}  // namespace npu
