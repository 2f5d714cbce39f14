#include "ops/reduce/cuda_launches.cuh"
#include "ops/reduce/cumsum.h"

namespace npu::reduce {
namespace {

// A warp for each row: 32 elements at a time, summed by doubled distances, after the sum of those before.
template <class Number>
__global__ void __launch_bounds__(kLanes* kWarps) sum_rows(const Plan plan, uint32_t x_stride,
                                                           uint32_t y_stride) {
  using V = Value<Number>;
  const uint32_t row = blockIdx.x * kWarps + threadIdx.y;
  if (row >= plan.results) return;
  const uint32_t from = offset_of(row, plan.kept_rank, plan.kept_shape, plan.kept_x);
  const uint32_t to = offset_of(row, plan.kept_rank, plan.kept_shape, plan.kept_y);
  V before = 0;
  for (uint32_t begin = 0; begin < plan.elements; begin += kLanes) {
    const uint32_t i = begin + threadIdx.x;
    V sum = i < plan.elements ? pointwise::read_element<Number>(plan.x, plan.x_element, from + i * x_stride) : V(0);
#pragma unroll
    for (unsigned distance = 1; distance < kLanes; distance *= 2) {
      const V other = V::of(__shfl_up_sync(~0u, sum.raw, distance));
      if (threadIdx.x >= distance) sum = sum + other;
    }
    sum = before + sum;
    if (i < plan.elements) pointwise::write_element(sum, plan.y, plan.y_element, to + i * y_stride);
    before = V::of(__shfl_sync(~0u, sum.raw, kLanes - 1));
  }
}

template <Class type>
Status supported_on_device(const OpCall& call) {
  NPU_TRY(supported_cumsum<type>(call));
  return expect_near(call);
}

template <class Number>
Status launch_sums(const OpCall& call) {
  const TensorDesc &x = call.inputs[0], &y = call.outputs[0];
  if (y.numel == 0) return {};
  const uint64_t axes = attrs_of<Cumsum>(call).axes(x.rank);
  const Geometry geometry = geometry_of(x, y, axes);
  const Plan plan = plan_of(call, geometry, {});
  const LaunchShape shape{dim3((plan.results + kWarps - 1) / kWarps), dim3(kLanes, kWarps)};
  return launch(sum_rows<Number>, shape, call.stream, plan, geometry.reduced.strides[0][0],
                geometry_of(y, y, axes).reduced.strides[0][0]);
}

template <Class type>
KernelPtr sum_kernel() {
  using Number = pointwise::NumberOf<type>;
  const std::string id = std::string("cumsum.") + pointwise::class_name(type) + ".cuda";
  const KernelFunctions functions{supported_on_device<type>, launch_sums<Number>, nullptr, nullptr,
                                  load_kernel<sum_rows<Number>>};
  return make_kernel({Cumsum::row.kind, id, DeviceType::Cuda, 5}, functions);
}

}  // namespace

std::vector<KernelPtr> cumsum_cuda_kernels() { return {sum_kernel<kFloat64>(), sum_kernel<kInt64>()}; }

}  // namespace npu::reduce
