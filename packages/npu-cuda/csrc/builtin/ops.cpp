#include <iterator>

#include "core/builtin.h"
#include "ops/copy/copy.h"
#include "ops/fused/fused.h"
#include "ops/gemm/gemm.h"
#include "ops/pointwise/pointwise.h"
#include "ops/reduce/arg.h"
#include "ops/reduce/batch_norm.h"
#include "ops/reduce/cumsum.h"
#include "ops/reduce/reduce.h"

namespace npu {
namespace {

template <class T>
void append(std::vector<T> some, std::vector<T>* all) {
  all->insert(all->end(), std::make_move_iterator(some.begin()), std::make_move_iterator(some.end()));
}

}  // namespace

std::vector<OpInfo> builtin_ops() {
  std::vector<OpInfo> all = pointwise::infos();
  append(reduce::infos(), &all);
  append({gemm_info(), copy_info(), fused_info()}, &all);
  return all;
}

std::vector<KernelPtr> builtin_kernels() {
  std::vector<KernelPtr> all;
  for (auto* kernels : {pointwise::host_kernels, fused_host_kernels, reduce::host_kernels, reduce::arg_host_kernels,
                        reduce::cumsum_host_kernels, reduce::batch_norm_host_kernels, gemm_host_kernels, copy_host_kernels}) {
    append(kernels(), &all);
  }
#ifdef NPU_WITH_CUDA
  for (auto* kernels : {pointwise::cuda_kernels, reduce::cuda_kernels, reduce::arg_cuda_kernels,
                        reduce::cumsum_cuda_kernels, reduce::batch_norm_cuda_kernels, gemm_cuda_kernels, copy_cuda_kernels}) {
    append(kernels(), &all);
  }
#endif
  return all;
}

}  // namespace npu
