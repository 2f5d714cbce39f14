#include "ops/pointwise/cuda_kernels.cuh"

namespace npu::pointwise {

std::vector<KernelPtr> training_cuda_kernels() { return cuda_kernels_of(AllTraining{}); }

}  // namespace npu::pointwise
