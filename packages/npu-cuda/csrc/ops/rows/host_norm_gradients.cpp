#include "ops/rows/host_call.h"
#include "ops/rows/rows.h"

namespace npu::rows {

std::vector<KernelPtr> norm_gradients_of_host() { return host_kernels_of(NormGradients{}); }

}  // namespace npu::rows
