#include "ops/pointwise/host_kernels.h"
#include "ops/pointwise/random.h"

namespace npu::pointwise {
namespace {

template <class Fn, Class type>
Status supported_random(const OpCall& call) { return check_random(Fn::row, type, call); }

template <class Fn, Class type>
Status launch_random(const OpCall& call) {
  static const ComputeRow compute = computed_by<Fn, NumberOf<type>>();
  if (call.outputs[0].numel == 0) return {};
  const auto attrs = attrs_of<typename Fn::Attrs>(call);
  const auto number = [&](int i) { return *static_cast<const uint64_t*>(call.inputs[call.num_inputs - i].data); };
  const RandomKey key{number(2), number(1)};
  const RandomCall random(call);
  const OneStep one(random.call(), type, compute, &attrs);
  HostCall made = host_call_of(random.call(), one.types, {&one.step, 1});
  made.random = &key;
  made.operands[0].is_direct = false;
  made.needs_blocks = true;
  run_on_host(made, random.call());
  return {};
}

template <class Fn, Class type>
KernelPtr kernel() {
  const std::string id = kernel_name(Fn::row) + "." + class_name(type) + ".host";
  return make_kernel({Fn::row.kind, id, DeviceType::Host, 5}, {supported_random<Fn, type>, launch_random<Fn, type>});
}

template <class... Fns>
std::vector<KernelPtr> kernels_of(Ops<Fns...>) { return {kernel<Fns, kFloat32>()..., kernel<Fns, kFloat64>()...}; }

}  // namespace

std::vector<KernelPtr> random_host_kernels() { return kernels_of(AllRandom{}); }

}  // namespace npu::pointwise
