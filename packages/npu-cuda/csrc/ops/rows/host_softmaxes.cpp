#include "ops/rows/host_call.h"
#include "ops/rows/rows.h"

namespace npu::rows {

std::vector<KernelPtr> softmaxes_of_host() { return host_kernels_of(Softmaxes{}); }

}  // namespace npu::rows
