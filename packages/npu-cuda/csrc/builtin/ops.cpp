#include <iterator>

#include "core/builtin.h"
#include "ops/add/add.h"
#include "ops/copy/copy.h"
#include "ops/gemm/gemm.h"
#include "ops/relu/relu.h"

namespace npu {
namespace {

void append(std::vector<KernelPtr> some, std::vector<KernelPtr>* all) {
  all->insert(all->end(), std::make_move_iterator(some.begin()), std::make_move_iterator(some.end()));
}

}  // namespace

std::vector<OpInfo> builtin_ops() { return {add_info(), relu_info(), gemm_info(), copy_info()}; }

std::vector<KernelPtr> builtin_kernels() {
  std::vector<KernelPtr> all;
  for (auto* kernels : {add_host_kernels, relu_host_kernels, gemm_host_kernels, copy_host_kernels}) append(kernels(), &all);
#ifdef NPU_WITH_CUDA
  for (auto* kernels : {add_cuda_kernels, relu_cuda_kernels, gemm_cuda_kernels, copy_cuda_kernels}) append(kernels(), &all);
#endif
  return all;
}

}  // namespace npu
