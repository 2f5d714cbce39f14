#include "ops/pointwise/host_kernels.h"

namespace npu::pointwise {

std::vector<KernelPtr> training_host_kernels() { return host_kernels_of(AllTraining{}); }

}  // namespace npu::pointwise
