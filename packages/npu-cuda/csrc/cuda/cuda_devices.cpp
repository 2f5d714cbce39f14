#include "cuda/cuda_devices.h"

#include "cuda/cuda_device.h"
#include "cuda/cuda_handles.h"

namespace npu {
namespace {

static_assert(CUDART_VERSION >= 13000, "npu-cuda needs the headers of CUDA 13 or newer");

std::string version_text(int version) {  // 13000 stands for 13.0
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

std::string why_there_is_no_driver() {
  int version = 0;
  if (cudaDriverGetVersion(&version) != cudaSuccess) (void)cudaGetLastError();
  const std::string needed = version_text(CUDART_VERSION);
  if (version == 0) return "this machine has no NVIDIA driver; CUDA " + needed + " needs one";
  return "the NVIDIA driver of this machine knows CUDA " + version_text(version) +
         "; this build needs a driver for CUDA " + needed + " or newer";
}

std::string why_there_is_none(cudaError_t error) {
  const std::string message = cuda_check(error, "cudaGetDeviceCount").message();
  const std::string detail = message.empty() ? "" : " (" + message + ")";
  if (error == cudaErrorInsufficientDriver) return why_there_is_no_driver() + detail;
  if (error == cudaErrorNoDevice || error == cudaSuccess) {
    return "the NVIDIA driver of this machine shows no GPU to this process; nvidia-smi and CUDA_VISIBLE_DEVICES may "
           "say why" + detail;
  }
  if (error == cudaErrorInitializationError) {
    return "CUDA cannot start in this process; it cannot be used after a fork of a process that used it" + detail;
  }
  return "CUDA does not work here" + detail;
}

Status describe(int id, bool is_only_one, CudaDevice::Traits* out) {
  cudaDeviceProp properties{};
  NPU_TRY(cuda_check(cudaGetDeviceProperties(&properties, id), "cudaGetDeviceProperties"));
  const int capability = properties.major * 10 + properties.minor;
  *out = {id, capability, std::string(properties.name) + ", sm_" + std::to_string(capability), is_only_one};
  return {};
}

}  // namespace

std::vector<Device*> cuda_devices(std::string* absence) {
  absence->clear();
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess || count == 0) return *absence = why_there_is_none(error), std::vector<Device*>();
  std::vector<Device*> devices;
  for (int id = 0; id < count; ++id) {
    CudaDevice::Traits traits;
    if (const Status status = describe(id, count == 1, &traits); !status.ok()) {
      if (!absence->empty()) *absence += "; ";
      *absence += "cuda:" + std::to_string(id) + " does not work: " + status.message();
      continue;
    }
    devices.push_back(new CudaDevice(std::move(traits)));
  }
  return devices;
}

}  // namespace npu
