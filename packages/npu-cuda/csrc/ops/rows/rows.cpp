#include "ops/rows/rows.h"

#include <algorithm>

#include "ops/rows/ops.h"

namespace npu::rows {
namespace {

template <class Fn>
OpInfo info_of() {
  OpInfo info{.kind = Fn::line.kind,
              .name = Fn::line.name,
              .min_inputs = Fn::line.inputs,
              .max_inputs = Fn::line.inputs,
              .num_outputs = Fn::line.outputs};
  const std::string letters = Fn::line.schema;
  if (!letters.empty()) {
    const char name[5] = {letters[0], letters[1], letters[2], letters[3], 0};
    info.schema = make_schema<typename Fn::Attrs>(name, Fn::Attrs::fields());
  }
  // A row is read before its result is written; the sums of a gradient of a norm are another pass.
  if (Fn::Formula::kGiven == 0)
    info.in_place[0] = Fn::Formula::kMade > 0 ? input_bit(0) : input_bit(Fn::line.inputs) - 1;
  return info;
}

void add(OpInfo info, std::vector<OpInfo>* all) {
  const auto found =
      std::find_if(all->begin(), all->end(), [&](const OpInfo& each) { return each.kind == info.kind; });
  if (found == all->end()) all->push_back(std::move(info));
  else found->max_inputs = std::max(found->max_inputs, info.max_inputs);
}

template <class... Fns>
void add_all(Ops<Fns...>, std::vector<OpInfo>* all) {
  (add(info_of<Fns>(), all), ...);
}

}  // namespace

std::vector<OpInfo> infos() {
  std::vector<OpInfo> all;
  add_all(Softmaxes{}, &all);
  add_all(Norms{}, &all);
  add_all(NormGradients{}, &all);
  return all;
}

std::vector<KernelPtr> host_kernels() {
  return joined<KernelPtr>({softmaxes_of_host(), norms_of_host(), norm_gradients_of_host()});
}

#ifdef NPU_WITH_CUDA
std::vector<KernelPtr> cuda_kernels() {
  return joined<KernelPtr>({softmaxes_of_cuda(), norms_of_cuda(), norm_gradients_of_cuda()});
}
#endif

}  // namespace npu::rows
