#include "ops/pointwise/host_kernels.h"

namespace npu::pointwise {

std::vector<HostOp> training_host_ops() { return host_ops_of(AllTraining{}); }

}  // namespace npu::pointwise
