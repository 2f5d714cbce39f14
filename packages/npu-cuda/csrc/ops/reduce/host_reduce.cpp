#include "ops/reduce/host_kernels.h"

namespace npu::reduce {

std::vector<KernelPtr> host_kernels() { return reductions_of(AllReductions{}); }

}  // namespace npu::reduce
