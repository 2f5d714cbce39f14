#include "ops/all.h"

#include <iterator>

#include "ops/relu/relu.h"

namespace npu {

std::vector<OpInfo> all_ops() { return {relu_info()}; }

std::vector<KernelPtr> all_kernels() {
  std::vector<KernelPtr> all;
  for (auto* kernels : {relu_host_kernels}) {
    std::vector<KernelPtr> some = kernels();
    all.insert(all.end(), std::make_move_iterator(some.begin()), std::make_move_iterator(some.end()));
  }
  return all;
}

}  // namespace npu
