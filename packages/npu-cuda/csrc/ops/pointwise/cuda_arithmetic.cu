#include "ops/pointwise/cuda_kernels.cuh"

namespace npu::pointwise {

std::vector<KernelPtr> arithmetic_cuda_kernels() { return cuda_kernels_of(AllArithmetic{}); }

}  // namespace npu::pointwise
