#include "build_values.h"
#include "core/builtin.h"
#include "host/host_device.h"

#ifdef NPU_WITH_CUDA
#include "cuda/cuda_device.h"
#endif

namespace npu {

Device* builtin_host() { return &HostDevice::instance(); }

#ifdef NPU_WITH_CUDA
std::vector<Device*> builtin_gpus(std::string* absence) {
  return cuda_devices(build_values::architectures, absence);
}
#else
std::vector<Device*> builtin_gpus(std::string* absence) {
  *absence = std::string("npu-cuda was built without CUDA: ") + build_values::reason;
  return {};
}
#endif

}  // namespace npu
