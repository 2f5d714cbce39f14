#include "ops/kernel_loading.h"
#include "ops/pointwise/cuda_kernels.cuh"
#include "ops/pointwise/random.h"

namespace npu::pointwise {
namespace {

// Of neighbours that begin at a multiple of four, one block of random words.
template <class Fn, class Number>
__global__ void __launch_bounds__(kThreads) nested_random(const NestedRows<kOperands<Fn>> rows, const uint64_t* seed,
                                                          const uint64_t* offset, const typename Fn::Attrs attrs) {
  const uint32_t thread = blockIdx.x * kThreads + threadIdx.x;
  if (thread >= rows.threads) return;
  uint32_t at[kOperands<Fn>], block = 0, words[4] = {};
  const uint32_t count = nested_offsets<Number>(rows, thread, at);
  Neighbours<Number> in[kInputs<Fn> + 1], out[kOutputs<Fn>];
  read_nested<Number, 1, kInputs<Fn>>(rows, at, count, in);
#pragma unroll
  for (uint32_t i = 0; i < kNeighbours<Number>; ++i) {
    const uint32_t place = at[0] + i * rows.strides[0][0];
    if (i == 0 || place / 4 != block) philox(*seed, *offset + place / 4, words);
    block = place / 4;
    const uint32_t half = place & 2, word = place & 1 ? (half ? words[3] : words[1]) : (half ? words[2] : words[0]);
    in[0].of[i] = Value<Number>::of(uniform_of(word));
  }
  apply_nested<Fn>(attrs, in, out);
  write_nested<Fn>(rows, out, at, count);
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
  const auto rows = nested_rows<NumberOf<type>, kOperands<Fn>>(random.call());
  const auto* seed = static_cast<const uint64_t*>(call.inputs[call.num_inputs - 2].data);
  const auto* offset = static_cast<const uint64_t*>(call.inputs[call.num_inputs - 1].data);
  return launch(nested_random<Fn, NumberOf<type>>, item_shape(rows.threads), call.stream, rows, seed, offset,
                attrs_of<typename Fn::Attrs>(call));
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
