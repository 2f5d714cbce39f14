// Pools on CUDA: a thread for each result, which asks the axes for its elements.
#include <algorithm>

#include "ops/elementwise_grid.h"
#include "ops/kernel_loading.h"
#include "ops/pointwise/cuda_kernels.cuh"
#include "ops/pool/pool.h"

namespace npu::pool {
namespace {

using pointwise::Element;
using pointwise::Value;

using DeviceAxis = AxisOf<int32_t>;
using DeviceRange = DeviceAxis::Range;

// Offsets and sizes have 32 bits, which supported_on_device makes sure of.
struct DeviceImage {
  void* data;
  Element element;
  int32_t batch_stride, channel_stride, sizes[kAxes], strides[kAxes];

  // Returns the offset of the first element of a channel.
  __device__ int32_t channel(int32_t batch, int32_t channel) const { return batch * batch_stride + channel * channel_stride; }
  // `at`: depth, height and width.
  __device__ int32_t offset(const int32_t* at) const { return at[0] * strides[0] + at[1] * strides[1] + at[2] * strides[2]; }
  __device__ int32_t place(const int32_t* at) const { return (at[0] * sizes[1] + at[1]) * sizes[2] + at[2]; }
};

// `y`: what the threads write. `places`: an output or an input, or none.
struct Plan {
  DeviceImage x, y, places;
  DeviceAxis axes[kAxes];
  FastDivision channels, sizes[kAxes];  // of y
  uint32_t count;
  bool has_places, is_channel_last;
};

struct Target {
  int32_t batch, channel, at[kAxes];
};

// The element of a thread; neighbours are neighbours in memory.
__device__ Target target_of(const Plan& plan, uint32_t index) {
  Target target;
  const auto take = [&index](const FastDivision& size) {
    uint32_t place;
    size(index, &index, &place);
    return static_cast<int32_t>(place);
  };
  if (plan.is_channel_last) target.channel = take(plan.channels);
#pragma unroll
  for (int axis = kAxes - 1; axis >= 0; --axis) target.at[axis] = take(plan.sizes[axis]);
  if (!plan.is_channel_last) target.channel = take(plan.channels);
  target.batch = static_cast<int32_t>(index);
  return target;
}

template <class Number>
__device__ Value<Number> read_at(const DeviceImage& image, int32_t offset) {
  return pointwise::read_element<Number>(image.data, image.element, static_cast<uint32_t>(offset));
}

template <class Number>
__device__ void write_target(const DeviceImage& y, const Target& target, Value<Number> value) {
  const int32_t offset = y.channel(target.batch, target.channel) + y.offset(target.at);
  pointwise::write_element(value, y.data, y.element, static_cast<uint32_t>(offset));
}

// Calls f for each element of three ranges, in their order.
template <class F>
__device__ void each(const DeviceRange* ranges, F f) {
  int32_t at[kAxes];
  for (at[0] = ranges[0].begin; at[0] < ranges[0].end; at[0] += ranges[0].step) {
    for (at[1] = ranges[1].begin; at[1] < ranges[1].end; at[1] += ranges[1].step) {
      for (at[2] = ranges[2].begin; at[2] < ranges[2].end; at[2] += ranges[2].step) f(at);
    }
  }
}

template <class Number>
__global__ void __launch_bounds__(kThreads, 1) max_pool(const Plan plan) {
  const uint32_t index = blockIdx.x * kThreads + threadIdx.x;
  if (index >= plan.count) return;
  const Target target = target_of(plan, index);
  DeviceRange ranges[kAxes];
  int32_t start[kAxes];
#pragma unroll
  for (int axis = 0; axis < kAxes; ++axis) {
    ranges[axis] = plan.axes[axis].elements<Number>(target.at[axis]);
    start[axis] = ranges[axis].begin;
  }
  Value<Number> most = -static_cast<double>(INFINITY);
  int32_t place = plan.x.place(start);
  const int32_t from = plan.x.channel(target.batch, target.channel);
  each(ranges, [&](const int32_t* at) {
    const auto x = read_at<Number>(plan.x, from + plan.x.offset(at));
    if (!(x > most || x != x).truth) return;
    most = x;
    place = plan.x.place(at);
  });
  write_target(plan.y, target, most);
  if (!plan.has_places) return;
  const int32_t to = plan.places.channel(target.batch, target.channel) + plan.places.offset(target.at);
  static_cast<int64_t*>(plan.places.data)[to] = place;
}

template <class Number>
__global__ void __launch_bounds__(kThreads, 1) max_pool_gradient(const Plan plan) {
  const uint32_t index = blockIdx.x * kThreads + threadIdx.x;
  if (index >= plan.count) return;
  const Target target = target_of(plan, index);
  DeviceRange ranges[kAxes];
#pragma unroll
  for (int axis = 0; axis < kAxes; ++axis) ranges[axis] = plan.axes[axis].positions<Number>(target.at[axis]);
  const int32_t own = plan.y.place(target.at);
  const int32_t from = plan.x.channel(target.batch, target.channel);
  const auto* places = static_cast<const int64_t*>(plan.places.data) + plan.places.channel(target.batch, target.channel);
  Value<Number> sum = 0;
  each(ranges, [&](const int32_t* at) {
    if (places[plan.places.offset(at)] == own) sum = sum + read_at<Number>(plan.x, from + plan.x.offset(at));
  });
  write_target(plan.y, target, sum);
}

// The elements along an axis of which a result is made, and their weights.
template <class Number, bool is_transposed>
struct Source {
  const DeviceAxis& axis;
  int32_t target;
  DeviceRange range;
  Number first, rest;  // weights; where it is transposed each element has its own

  __device__ Source(const DeviceAxis& axis, int32_t target) : axis(axis), target(target) {
    if constexpr (is_transposed) {
      range = axis.positions<Number>(target);
    } else {
      range = axis.elements<Number>(target);
      first = rest = axis.weight<Number>(target, range.begin);
      if (range.end - range.begin > 1 && axis.mode >= Mode::Linear) rest = axis.weight<Number>(target, range.begin + 1);
    }
  }
  __device__ Number weight(int32_t source) const {
    if constexpr (is_transposed) return axis.weight<Number>(source, target);
    else return source == range.begin ? first : rest;
  }
};

template <class Number, bool is_transposed>
__global__ void __launch_bounds__(kThreads, 1) resample(const Plan plan) {
  const uint32_t index = blockIdx.x * kThreads + threadIdx.x;
  if (index >= plan.count) return;
  const Target target = target_of(plan, index);
  const Source<Number, is_transposed> depth(plan.axes[0], target.at[0]), height(plan.axes[1], target.at[1]),
      width(plan.axes[2], target.at[2]);
  const int32_t from = plan.x.channel(target.batch, target.channel);
  Value<Number> sum = 0;
  int32_t at[kAxes];
  for (at[0] = depth.range.begin; at[0] < depth.range.end; ++at[0]) {
    const Number of_depth = depth.weight(at[0]);
    for (at[1] = height.range.begin; at[1] < height.range.end; ++at[1]) {
      const Number of_row = of_depth * height.weight(at[1]);
      for (at[2] = width.range.begin; at[2] < width.range.end; ++at[2]) {
        const auto x = read_at<Number>(plan.x, from + plan.x.offset(at));
        sum = sum + Value<Number>::of(of_row * width.weight(at[2])) * x;
      }
    }
  }
  write_target(plan.y, target, sum);
}

DeviceImage device_image(const Image& image) {
  const auto narrow = [](int64_t number) { return static_cast<int32_t>(number); };
  DeviceImage device{image.data, pointwise::element_of(image.dtype), narrow(image.batch_stride), narrow(image.channel_stride), {}, {}};
  std::transform(image.sizes, image.sizes + kAxes, device.sizes, narrow);
  std::transform(image.strides, image.strides + kAxes, device.strides, narrow);
  return device;
}

DeviceAxis device_axis(const Axis& axis) {
  const auto narrow = [](int64_t number) { return static_cast<int32_t>(number); };
  return {axis.mode, narrow(axis.size), narrow(axis.count), narrow(axis.kernel), narrow(axis.stride), narrow(axis.padding),
          narrow(axis.dilation), axis.counts_padding, narrow(axis.divisor), axis.scale};
}

// From the image to the pooled one.
template <class AttrsType>
Geometry geometry_of_call(const OpCall& call, bool is_transposed) {
  const auto attrs = attrs_of<AttrsType>(call);
  const Image x = image_of(call.inputs[0], attrs.axes), y = image_of(call.outputs[0], attrs.axes);
  return is_transposed ? geometry_of(attrs, y, x) : geometry_of(attrs, x, y);
}

template <class AttrsType>
Plan plan_of(const OpCall& call, const TensorDesc* places, bool is_transposed) {
  const int axes = attrs_of<AttrsType>(call).axes;
  const TensorDesc& tensor = call.outputs[0];
  const Image y = image_of(tensor, axes);
  const Geometry geometry = geometry_of_call<AttrsType>(call, is_transposed);
  Plan plan{};
  plan.x = device_image(image_of(call.inputs[0], axes));
  plan.y = device_image(y);
  if (places) plan.places = device_image(image_of(*places, axes));
  std::transform(geometry.axes, geometry.axes + kAxes, plan.axes, device_axis);
  plan.count = static_cast<uint32_t>(tensor.numel);
  plan.has_places = places != nullptr;
  plan.is_channel_last = y.channel_stride == 1;
  if (plan.count == 0) return plan;
  plan.channels = FastDivision(static_cast<uint32_t>(y.channels));
  for (int axis = 0; axis < kAxes; ++axis) plan.sizes[axis] = FastDivision(static_cast<uint32_t>(y.sizes[axis]));
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

template <Status (*check)(const OpCall&, bool), class Number, class AttrsType>
Status supported_on_device(const OpCall& call) {
  constexpr int64_t far = int64_t{1} << 31;
  NPU_TRY((supported<check, Number>(call)));
  NPU_TRY(expect_near(call));
  bool is_transposed = check == check_max_pool_bwd;
  if constexpr (std::is_same_v<AttrsType, ResampleAttrs>) is_transposed = attrs_of<AttrsType>(call).transposed != 0;
  for (const Axis& axis : geometry_of_call<AttrsType>(call, is_transposed).axes) {
    if (axis.size + 2 * axis.padding + axis.stride + axis.kernel * axis.dilation >= far) {
      return Status::not_implemented("a window and its padding reach over 2^31 elements or more");
    }
  }
  return {};
}

template <class Number>
void add_kernels(const std::string& name, std::vector<KernelPtr>* kernels) {
  const auto add = [&](OpKind kind, const char* op, KernelFunctions functions) {
    kernels->push_back(make_kernel({kind, std::string(op) + "." + name + ".cuda", DeviceType::Cuda}, functions));
  };
  add(kMaxPool, "max_pool", {supported_on_device<check_max_pool, Number, Attrs>, launch_max_pool<Number>, cost, nullptr,
                             load_kernel<max_pool<Number>>});
  add(kMaxPoolBwd, "max_pool_bwd", {supported_on_device<check_max_pool_bwd, Number, Attrs>, launch_max_pool_bwd<Number>, cost, nullptr,
                                    load_kernel<max_pool_gradient<Number>>});
  add(kResample, "resample", {supported_on_device<check_resample, Number, ResampleAttrs>, launch_resample<Number>, cost, nullptr,
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
