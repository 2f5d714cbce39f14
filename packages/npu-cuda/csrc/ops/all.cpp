#include "ops/all.h"

#include <iterator>

#include "ops/add/add.h"
#include "ops/copy/copy.h"
#include "ops/gemm/gemm.h"
#include "ops/relu/relu.h"

namespace npu {

std::vector<OpInfo> all_ops() { return {add_info(), relu_info(), gemm_info(), copy_info()}; }

std::vector<KernelPtr> all_kernels() {
  std::vector<KernelPtr> all;
  for (auto* kernels : {add_host_kernels, relu_host_kernels, gemm_host_kernels, copy_host_kernels}) {
    std::vector<KernelPtr> some = kernels();
    all.insert(all.end(), std::make_move_iterator(some.begin()), std::make_move_iterator(some.end()));
  }
  return all;
}

}  // namespace npu
