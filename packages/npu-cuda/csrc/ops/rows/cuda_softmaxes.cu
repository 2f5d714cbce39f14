#include "ops/rows/cuda_call.cuh"
#include "ops/rows/rows.h"

namespace npu::rows {

std::vector<KernelPtr> softmaxes_of_cuda() { return cuda_kernels_of(Softmaxes{}); }

}  // namespace npu::rows
