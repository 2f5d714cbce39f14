#include <iterator>

#include "core/builtin.h"
#include "ops/copy/copy.h"
#include "ops/gemm/gemm.h"
#include "ops/pointwise/pointwise.h"
#include "ops/rows/nll.h"
#include "ops/rows/rows.h"

namespace npu {
namespace {

template <class T>
void append(std::vector<T> some, std::vector<T>* all) {
  all->insert(all->end(), std::make_move_iterator(some.begin()), std::make_move_iterator(some.end()));
}

}  // namespace

std::vector<OpInfo> builtin_ops() {
  std::vector<OpInfo> all = pointwise::infos();
  append(rows::infos(), &all);
  append(rows::nll_infos(), &all);
  append({gemm_info(), copy_info()}, &all);
  return all;
}

std::vector<KernelPtr> builtin_kernels() {
  std::vector<KernelPtr> all;
  for (auto* kernels : {pointwise::host_kernels, rows::host_kernels, rows::nll_host_kernels,
                        gemm_host_kernels, copy_host_kernels}) {
    append(kernels(), &all);
  }
#ifdef NPU_WITH_CUDA
  for (auto* kernels : {pointwise::cuda_kernels, rows::cuda_kernels, rows::nll_cuda_kernels,
                        gemm_cuda_kernels, copy_cuda_kernels}) {
    append(kernels(), &all);
  }
#endif
  return all;
}

}  // namespace npu
