#include "ops/rows/cuda_call.cuh"
#include "ops/rows/rows.h"

namespace npu::rows {

std::vector<KernelPtr> norm_gradients_of_cuda() { return cuda_kernels_of(NormGradients{}); }

}  // namespace npu::rows
