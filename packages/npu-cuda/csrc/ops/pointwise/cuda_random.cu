#include "ops/kernel_loading.h"
#include "ops/pointwise/cuda_kernels.cuh"
#include "ops/pointwise/random.h"

namespace npu::pointwise {
namespace {

constexpr uint32_t kOfAThread = 4;  // elements; where all are contiguous, one block of random words

template <class Fn, class Number>
__global__ void __launch_bounds__(kThreads) nested_random(const NestedRows<kOperands<Fn>> rows, const uint64_t* seed,
                                                          const uint64_t* offset, const typename Fn::Attrs attrs) {
  const uint32_t first = (blockIdx.x * kThreads + threadIdx.x) * kOfAThread;
  uint32_t block = 0, words[4] = {};
  for (uint32_t i = first; i < rows.numel && i < first + kOfAThread; ++i) {
    uint32_t at[kOperands<Fn>];
    nested_offsets(rows, i, at);
    if (i == first || at[0] / 4 != block) philox(*seed, *offset + at[0] / 4, words);
    block = at[0] / 4;
    const uint32_t half = at[0] & 2, word = at[0] & 1 ? (half ? words[3] : words[1]) : (half ? words[2] : words[0]);
    Value<Number> values[kInputs<Fn>];
    values[0] = Value<Number>::of(uniform_of(word));
#pragma unroll
    for (int k = 1; k < kInputs<Fn>; ++k) values[k] = read_element<Number>(rows.data[k], rows.element[k], at[k]);
    write_nested<Fn>(rows, apply<Fn>(attrs, values), at);
  }
}

template <class Fn, Class type>
Status supported_random(const OpCall& call) {
  NPU_TRY(check_random(Fn::row, type, call));
  return expect_near(RandomCall(call).call());
}

template <class Fn, Class type>
Status launch_random(const OpCall& call) {
  if (call.outputs[0].numel == 0) return {};
  const RandomCall random(call);
  const auto rows = nested_rows<kOperands<Fn>>(random.call());
  const auto* seed = static_cast<const uint64_t*>(call.inputs[call.num_inputs - 2].data);
  const auto* offset = static_cast<const uint64_t*>(call.inputs[call.num_inputs - 1].data);
  const LaunchShape shape = item_shape((int64_t{rows.numel} + kOfAThread - 1) / kOfAThread);
  return launch(nested_random<Fn, NumberOf<type>>, shape, call.stream, rows, seed, offset, attrs_of<typename Fn::Attrs>(call));
}

template <class Fn, Class type>
KernelPtr kernel() {
  const std::string id = kernel_name(Fn::row) + "." + class_name(type) + ".cuda";
  const KernelFunctions functions{supported_random<Fn, type>, launch_random<Fn, type>, nullptr, nullptr,
                                  load_kernel<nested_random<Fn, NumberOf<type>>>};
  return make_kernel({Fn::row.kind, id, DeviceType::Cuda, 5}, functions);
}

template <class... Fns>
std::vector<KernelPtr> kernels_of(Ops<Fns...>) { return {kernel<Fns, kFloat32>()..., kernel<Fns, kFloat64>()...}; }

}  // namespace

std::vector<KernelPtr> random_cuda_kernels() { return kernels_of(AllRandom{}); }

}  // namespace npu::pointwise
