#include "ops/reduce/arg.h"
#include "ops/reduce/cuda_launches.cuh"

namespace npu::reduce {
namespace {

// The best element so far and its place; none: the place is that after the last.
template <class Number>
struct Best {
  Number value;
  uint32_t place;
};

// Returns the better of two elements; of equal ones the first of the row, whichever comes first here.
template <class Fn, class Number>
__device__ Best<Number> better(Best<Number> a, Best<Number> b, uint32_t none) {
  if (b.place == none) return a;
  if (a.place == none || is_better<Fn>(b.value, a.value)) return b;
  return b.place < a.place && !is_better<Fn>(a.value, b.value) ? b : a;
}

// A warp for each result.
template <class Fn, class Number>
__global__ void __launch_bounds__(kLanes* kWarps) places(const Plan plan) {
  const uint32_t result = blockIdx.x * kWarps + threadIdx.y, none = plan.elements;
  const bool is_used = result < plan.results;
  Best<Number> best{0, none};
  const uint32_t offset = is_used ? offset_of(result, plan.kept_rank, plan.kept_shape, plan.kept_x) : 0;
  constexpr int kAtOnce = 4;
  for (uint32_t i = threadIdx.x; is_used && i < plan.elements; i += kAtOnce * kLanes) {
    uint32_t indices[kAtOnce], at[kAtOnce];
    Value<Number> x[kAtOnce];
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      indices[j] = min(i + j * kLanes, none - 1);
      at[j] = offset;
    }
    add_offsets(indices, plan.reduced_rank, plan.reduced_shape, plan.reduced_x, at);
    pointwise::read_elements<Number, kAtOnce>(plan.x, plan.x_element, at, x);
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      if (i + j * kLanes < none) best = better<Fn>(best, {x[j].raw, i + j * kLanes}, none);
    }
  }
#pragma unroll
  for (int half = kLanes / 2; half > 0; half /= 2) {
    const Best<Number> other{__shfl_down_sync(~0u, best.value, half),
                             __shfl_down_sync(~0u, best.place, half)};
    best = better<Fn>(best, other, none);
  }
  if (!is_used || threadIdx.x != 0) return;
  const uint32_t to = offset_of(result, plan.kept_rank, plan.kept_shape, plan.kept_y);
  static_cast<int64_t*>(plan.y)[to] = best.place;
}

template <class Fn, Class type>
Status supported_on_device(const OpCall& call) {
  NPU_TRY((supported_arg<Fn, type>(call)));
  return expect_near(call);
}

template <class Fn, class Number>
Status launch_places(const OpCall& call) {
  if (call.outputs[0].numel == 0) return {};
  const TensorDesc& x = call.inputs[0];
  const Geometry geometry = geometry_of(x, call.outputs[0], attrs_of<Axes>(call).reduced(x.rank));
  const Plan plan = plan_of(call, geometry, {});
  const LaunchShape shape{dim3((plan.results + kWarps - 1) / kWarps), dim3(kLanes, kWarps)};
  return launch(places<Fn, Number>, shape, call.stream, plan);
}

template <class Fn, Class type>
KernelPtr places_kernel() {
  using Number = pointwise::NumberOf<type>;
  const std::string id = pointwise::kernel_name(Fn::row) + "." + pointwise::class_name(type) + ".cuda";
  const KernelFunctions functions{supported_on_device<Fn, type>, launch_places<Fn, Number>, nullptr, nullptr,
                                  load_kernel<places<Fn, Number>>};
  return make_kernel({Fn::row.kind, id, DeviceType::Cuda, 5}, functions);
}

}  // namespace

std::vector<KernelPtr> arg_cuda_kernels() {
  return {places_kernel<Argmax, kFloat32>(), places_kernel<Argmax, kFloat64>(),
          places_kernel<Argmax, kInt64>(),   places_kernel<Argmin, kFloat32>(),
          places_kernel<Argmin, kFloat64>(), places_kernel<Argmin, kInt64>()};
}

}  // namespace npu::reduce
