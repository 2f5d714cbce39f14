#include "ops/pointwise/host_kernels.h"

namespace npu::pointwise {

std::vector<HostOp> arithmetic_host_ops() { return host_ops_of(AllArithmetic{}); }

}  // namespace npu::pointwise
