#include "ops/kernel_loading.h"
#include "ops/lists/cuda_table.cuh"

namespace npu::lists {
namespace {

using namespace pointwise;
using pointwise::kFloat32;

template <class Fn>
using Table = ListTable<kOperands<Fn>>;

// Four elements from `at` on, of float32.
template <class Fn>
__device__ void compute_access(const Table<Fn>& table, int place, int64_t at, const Value<float>* constant,
                               const typename Fn::Attrs& attrs) {
  using Four = Access<float, 4>;
  Four x[kInputs<Fn>], y[kOutputs<Fn>];
#pragma unroll
  for (int k = 0; k < kInputs<Fn>; ++k) {
    if (!(table.constants[place] >> k & 1)) x[k] = *reinterpret_cast<const Four*>(static_cast<const float*>(table.data[place][k]) + at);
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    Value<float> values[kInputs<Fn>];
#pragma unroll
    for (int k = 0; k < kInputs<Fn>; ++k) {
      values[k] = table.constants[place] >> k & 1 ? constant[k] : Value<float>::of(x[k].items[i]);
    }
    const auto results = apply<Fn>(attrs, values);
#pragma unroll
    for (int k = 0; k < kOutputs<Fn>; ++k) y[k].items[i] = results.of[k].raw;
  }
#pragma unroll
  for (int k = 0; k < kOutputs<Fn>; ++k) {
    *reinterpret_cast<Four*>(static_cast<float*>(table.data[place][kInputs<Fn> + k]) + at) = y[k];
  }
}

// One block is enough for a multiprocessor: else registers are few, and spilled.
template <class Fn, class Number>
__global__ void __launch_bounds__(kThreads, 1) listed(const Table<Fn> table, const typename Fn::Attrs attrs) {
  const int place = table.find(blockIdx.x);
  int64_t at = int64_t{blockIdx.x - table.first_block[place]} * kPart;
  const int64_t rest = table.numel[place] - at, end = at + (rest < kPart ? rest : kPart);
  if constexpr (std::is_same_v<Number, float>) {
    if (table.is_aligned[place]) {
      Value<float> constant[kInputs<Fn>];
#pragma unroll
      for (int k = 0; k < kInputs<Fn>; ++k) {
        if (table.constants[place] >> k & 1) constant[k] = Value<float>::of(*static_cast<const float*>(table.data[place][k]));
      }
      const int64_t whole = at + (end - at) / 4 * 4;
      for (at += threadIdx.x * 4; at < whole; at += kThreads * 4) compute_access<Fn>(table, place, at, constant, attrs);
      at = whole;
    }
  }
  for (at += threadIdx.x; at < end; at += kThreads) {
    Value<Number> values[kInputs<Fn>];
#pragma unroll
    for (int k = 0; k < kInputs<Fn>; ++k) {
      const auto from = static_cast<uint32_t>(table.constants[place] >> k & 1 ? 0 : at);
      values[k] = read_element<Number>(table.data[place][k], table.element[place][k], from);
    }
    const auto results = apply<Fn>(attrs, values);
#pragma unroll
    for (int k = 0; k < kOutputs<Fn>; ++k) {
      constexpr int first = kInputs<Fn>;
      write_element(results.of[k], table.data[place][first + k], table.element[place][first + k], static_cast<uint32_t>(at));
    }
  }
}

template <class Fn, Class type>
Status supported_listed(const OpCall& one) {
  NPU_TRY((supported<Fn, type>(one)));
  return expect_rows(one);
}

template <class Fn, Class type>
Status launch_listed(const OpCall& call, const Elements& elements) {
  const auto attrs = attrs_of_call<Fn>(call);
  TensorDesc tensors[kMaxOperands];
  return each_table<kOperands<Fn>>(
      elements.length(), [&](int i) { return elements.at(i, tensors); },
      [&](const Table<Fn>& table, uint32_t blocks) {
        return launch(listed<Fn, NumberOf<type>>, {dim3(blocks), dim3(kThreads)}, call.stream, table, attrs);
      });
}

template <class Fn, Class type>
void add_op(std::vector<ListOp>* ops) {
  if constexpr ((Fn::row.classes & type) != 0) {
    ops->push_back({Fn::row, type, supported_listed<Fn, type>, cost<Fn>, launch_listed<Fn, type>,
                    load_kernel<listed<Fn, NumberOf<type>>>});
  }
}

template <class... Fns>
std::vector<ListOp> list_ops(Ops<Fns...>) {
  std::vector<ListOp> ops;
  (add_op<Fns, kFloat32>(&ops), ...);
  (add_op<Fns, kFloat64>(&ops), ...);
  (add_op<Fns, kInt64>(&ops), ...);
  return ops;
}

using CudaForms = Ops<op::SgdStep, op::SgdStepLr, op::AdamStep, op::AdamStepLr, op::SgdMomentumStep, op::SgdMomentumStepLr,
                      op::AmsgradStep, op::AmsgradStepLr, op::StepInc, op::BiasCorr, op::ClipByNorm, op::Unscale>;

}  // namespace

std::vector<KernelPtr> cuda_kernels() { return kernels_of(list_ops(CudaForms{}), DeviceType::Cuda); }

}  // namespace npu::lists
