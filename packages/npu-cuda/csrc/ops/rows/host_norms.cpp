#include "ops/rows/host_call.h"
#include "ops/rows/rows.h"

namespace npu::rows {

std::vector<KernelPtr> norms_of_host() { return host_kernels_of(Norms{}); }

}  // namespace npu::rows
