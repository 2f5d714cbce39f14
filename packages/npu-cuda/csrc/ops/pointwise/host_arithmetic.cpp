#include "ops/pointwise/host_kernels.h"

namespace npu::pointwise {

std::vector<KernelPtr> arithmetic_host_kernels() { return host_kernels_of(AllArithmetic{}); }

}  // namespace npu::pointwise
