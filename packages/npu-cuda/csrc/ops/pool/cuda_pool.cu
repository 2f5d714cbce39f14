// Pools on CUDA: a thread for each result, which asks the axes for its elements.
#include "ops/elementwise_grid.h"
#include "ops/kernel_loading.h"
#include "ops/pointwise/cuda_kernels.cuh"
#include "ops/pool/pool.h"

namespace npu::pool {
namespace {

using pointwise::Element;
using pointwise::Value;

struct DeviceImage {
  Image image;
  Element element;

  // `at`: depth, height and width.
  __device__ uint32_t offset(int64_t batch, int64_t channel, const int64_t* at) const {
    return static_cast<uint32_t>(batch * image.batch_stride + channel * image.channel_stride + at[0] * image.strides[0] +
                                 at[1] * image.strides[1] + at[2] * image.strides[2]);
  }
};

// `y`: what the threads write. `places`: an output or an input, or none.
struct Plan {
  DeviceImage x, y, places;
  Geometry geometry;
  uint32_t count;
  bool has_places;
};

struct Target {
  int64_t batch, channel, at[kAxes];
};

// The element of a thread; neighbours are neighbours in memory.
__device__ Target target_of(const Image& y, uint32_t index) {
  Target target;
  const auto take = [&index](int64_t size) {
    const auto divisor = static_cast<uint32_t>(size);
    const uint32_t rest = index % divisor;
    index /= divisor;
    return static_cast<int64_t>(rest);
  };
  const bool is_last = y.channel_stride == 1;
  if (is_last) target.channel = take(y.channels);
#pragma unroll
  for (int axis = kAxes - 1; axis >= 0; --axis) target.at[axis] = take(y.sizes[axis]);
  if (!is_last) target.channel = take(y.channels);
  target.batch = index;
  return target;
}

// Calls f for each element of three ranges, in their order.
template <class F>
__device__ void each(const Range* ranges, F f) {
  int64_t at[kAxes];
  for (at[0] = ranges[0].begin; at[0] < ranges[0].end; at[0] += ranges[0].step) {
    for (at[1] = ranges[1].begin; at[1] < ranges[1].end; at[1] += ranges[1].step) {
      for (at[2] = ranges[2].begin; at[2] < ranges[2].end; at[2] += ranges[2].step) f(at);
    }
  }
}

__device__ int64_t place_of(const Image& image, const int64_t* at) {
  return (at[0] * image.sizes[1] + at[1]) * image.sizes[2] + at[2];
}

template <class Number>
__global__ void __launch_bounds__(kThreads, 1) max_pool(const Plan plan) {
  const uint32_t index = blockIdx.x * kThreads + threadIdx.x;
  if (index >= plan.count) return;
  const Target target = target_of(plan.y.image, index);
  Range ranges[kAxes];
  int64_t start[kAxes];
#pragma unroll
  for (int axis = 0; axis < kAxes; ++axis) {
    ranges[axis] = plan.geometry.axes[axis].elements<Number>(target.at[axis]);
    start[axis] = ranges[axis].begin;
  }
  Value<Number> most = -static_cast<double>(INFINITY);
  int64_t place = place_of(plan.x.image, start);
  each(ranges, [&](const int64_t* at) {
    const auto x = pointwise::read_element<Number>(plan.x.image.data, plan.x.element, plan.x.offset(target.batch, target.channel, at));
    if (!(x > most || x != x).truth) return;
    most = x;
    place = place_of(plan.x.image, at);
  });
  pointwise::write_element(most, plan.y.image.data, plan.y.element, plan.y.offset(target.batch, target.channel, target.at));
  if (plan.has_places) {
    reinterpret_cast<int64_t*>(plan.places.image.data)[plan.places.offset(target.batch, target.channel, target.at)] = place;
  }
}

template <class Number>
__global__ void __launch_bounds__(kThreads, 1) max_pool_gradient(const Plan plan) {
  const uint32_t index = blockIdx.x * kThreads + threadIdx.x;
  if (index >= plan.count) return;
  const Target target = target_of(plan.y.image, index);
  Range ranges[kAxes];
#pragma unroll
  for (int axis = 0; axis < kAxes; ++axis) ranges[axis] = plan.geometry.axes[axis].positions<Number>(target.at[axis]);
  const int64_t own = place_of(plan.y.image, target.at);
  Value<Number> sum = 0;
  each(ranges, [&](const int64_t* at) {
    const auto* places = reinterpret_cast<const int64_t*>(plan.places.image.data);
    if (places[plan.places.offset(target.batch, target.channel, at)] != own) return;
    sum = sum + pointwise::read_element<Number>(plan.x.image.data, plan.x.element, plan.x.offset(target.batch, target.channel, at));
  });
  pointwise::write_element(sum, plan.y.image.data, plan.y.element, plan.y.offset(target.batch, target.channel, target.at));
}

// The elements along an axis of which a result is made, and their weights.
template <class Number, bool is_transposed>
struct Source {
  const Axis& axis;
  int64_t target;

  __device__ Range range() const {
    if constexpr (is_transposed) return axis.positions<Number>(target);
    else return axis.elements<Number>(target);
  }
  __device__ Number weight(int64_t source) const {
    return is_transposed ? axis.weight<Number>(source, target) : axis.weight<Number>(target, source);
  }
};

template <class Number, bool is_transposed>
__global__ void __launch_bounds__(kThreads, 1) resample(const Plan plan) {
  const uint32_t index = blockIdx.x * kThreads + threadIdx.x;
  if (index >= plan.count) return;
  const Target target = target_of(plan.y.image, index);
  const Axis* axes = plan.geometry.axes;
  const Source<Number, is_transposed> depth{axes[0], target.at[0]}, height{axes[1], target.at[1]}, width{axes[2], target.at[2]};
  const Range deep = depth.range(), high = height.range(), wide = width.range();
  Value<Number> sum = 0;
  int64_t at[kAxes];
  for (at[0] = deep.begin; at[0] < deep.end; ++at[0]) {
    const Number of_depth = depth.weight(at[0]);
    for (at[1] = high.begin; at[1] < high.end; ++at[1]) {
      const Number of_row = of_depth * height.weight(at[1]);
      for (at[2] = wide.begin; at[2] < wide.end; ++at[2]) {
        const uint32_t place = plan.x.offset(target.batch, target.channel, at);
        const auto x = pointwise::read_element<Number>(plan.x.image.data, plan.x.element, place);
        sum = sum + Value<Number>::of(of_row * width.weight(at[2])) * x;
      }
    }
  }
  pointwise::write_element(sum, plan.y.image.data, plan.y.element, plan.y.offset(target.batch, target.channel, target.at));
}

DeviceImage device_image(const TensorDesc& tensor, int axes) {
  return {image_of(tensor, axes), pointwise::element_of(tensor.dtype)};
}

template <class AttrsType>
Plan plan_of(const OpCall& call, const TensorDesc* places, bool is_transposed) {
  const auto attrs = attrs_of<AttrsType>(call);
  const TensorDesc& y = call.outputs[0];
  Plan plan{device_image(call.inputs[0], attrs.axes), device_image(y, attrs.axes), {}, {}, static_cast<uint32_t>(y.numel),
            places != nullptr};
  if (places) plan.places = device_image(*places, attrs.axes);
  plan.geometry = is_transposed ? geometry_of(attrs, plan.y.image, plan.x.image) : geometry_of(attrs, plan.x.image, plan.y.image);
  return plan;
}

Status launch_plan(const OpCall& call, void (*kernel)(Plan), const Plan& plan) {
  return plan.count == 0 ? Status() : launch(kernel, item_shape(plan.count), call.stream, plan);
}

template <class Number>
Status launch_max_pool(const OpCall& call) {
  return launch_plan(call, max_pool<Number>, plan_of<Attrs>(call, call.num_outputs == 2 ? &call.outputs[1] : nullptr, false));
}

template <class Number>
Status launch_max_pool_bwd(const OpCall& call) {
  return launch_plan(call, max_pool_gradient<Number>, plan_of<Attrs>(call, &call.inputs[1], true));
}

template <class Number>
Status launch_resample(const OpCall& call) {
  const bool is_transposed = attrs_of<ResampleAttrs>(call).transposed != 0;
  return launch_plan(call, is_transposed ? resample<Number, true> : resample<Number, false>, plan_of<ResampleAttrs>(call, nullptr, is_transposed));
}

template <class Number>
Status load_resample(const OpCall& call, void** state) {
  NPU_TRY((load_kernel<resample<Number, true>>(call, state)));
  return load_kernel<resample<Number, false>>(call, state);
}

template <Status (*check)(const OpCall&, bool), class Number>
Status supported_on_device(const OpCall& call) {
  NPU_TRY((supported<check, Number>(call)));
  bool has_far = false;
  for (int i = 0; i < call.num_inputs; ++i) has_far = has_far || pointwise::is_far(call.inputs[i]);
  for (int i = 0; i < call.num_outputs; ++i) has_far = has_far || pointwise::is_far(call.outputs[i]);
  return has_far ? Status::not_implemented("a tensor spans 2^31 elements or more") : Status();
}

template <class Number>
void add_kernels(const std::string& name, std::vector<KernelPtr>* kernels) {
  const auto add = [&](OpKind kind, const char* op, KernelFunctions functions) {
    kernels->push_back(make_kernel({kind, std::string(op) + "." + name + ".cuda", DeviceType::Cuda}, functions));
  };
  add(kMaxPool, "max_pool", {supported_on_device<check_max_pool, Number>, launch_max_pool<Number>, cost, nullptr,
                             load_kernel<max_pool<Number>>});
  add(kMaxPoolBwd, "max_pool_bwd", {supported_on_device<check_max_pool_bwd, Number>, launch_max_pool_bwd<Number>, cost, nullptr,
                                    load_kernel<max_pool_gradient<Number>>});
  add(kResample, "resample", {supported_on_device<check_resample, Number>, launch_resample<Number>, cost, nullptr,
                              load_resample<Number>});
}

}  // namespace

std::vector<KernelPtr> cuda_kernels() {
  std::vector<KernelPtr> kernels;
  add_kernels<float>("f32", &kernels);
  add_kernels<double>("f64", &kernels);
  return kernels;
}

}  // namespace npu::pool
