#include "ops/reduce/batch_norm_steps.h"
#include "ops/reduce/host_kernels.h"

namespace npu::reduce {
namespace {

template <Class type>
struct HostSteps {
  using Number = pointwise::NumberOf<type>;
  template <class Fn>
  static Status reduce(const OpCall& call) { return launch<Fn, type>(call); }
  template <class Fn>
  static Status pointwise(const OpCall& call) { return npu::pointwise::launch<Fn, type>(call); }
  template <class Fn>
  static uint64_t reduction_bytes(const OpCall&) { return 0; }
};

template <Class type>
void add_batch_norms(std::vector<KernelPtr>* kernels) {
  const std::string suffix = std::string(".") + pointwise::class_name(type) + ".host";
  const auto fwd = [](const OpCall& call) { return check_batch_norm_fwd(type, call); };
  const auto bwd = [](const OpCall& call) { return check_batch_norm_bwd(type, call); };
  using Steps = HostSteps<type>;
  kernels->push_back(make_kernel({OpKind::BatchNormFwd, "batch_norm_fwd" + suffix, DeviceType::Host, 5},
                                 {fwd, launch_batch_norm_fwd<Steps>, nullptr, fwd_bytes<Steps>}));
  kernels->push_back(make_kernel({OpKind::BatchNormBwd, "batch_norm_bwd" + suffix, DeviceType::Host, 5},
                                 {bwd, launch_batch_norm_bwd<Steps>, nullptr, bwd_bytes<Steps>}));
}

}  // namespace

std::vector<KernelPtr> batch_norm_host_kernels() {
  std::vector<KernelPtr> kernels;
  add_batch_norms<kFloat32>(&kernels);
  add_batch_norms<kFloat64>(&kernels);
  return kernels;
}

}  // namespace npu::reduce
