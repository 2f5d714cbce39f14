// Convolutions and gradients of weights on CUDA: a thread computes one result, in the order of taps and inputs. Simple
// kernels: they make every graph with convolutions run, in any layout, and are there to be compared with.
#include "ops/conv/conv.h"
#include "ops/device_floats.h"
#include "ops/elementwise_grid.h"
#include "ops/kernel_loading.h"

namespace npu::conv {
namespace {

struct Problem {
  Geometry g;
  WeightStrides weights;
  void* weight_data;
  const void* bias;  // null: none
  int64_t bias_stride;
};

__device__ int64_t place(const Image& image, int64_t batch, int64_t channel, const int64_t* at) {
  return batch * image.batch_stride + channel * image.channel_stride + at[0] * image.strides[0] + at[1] * image.strides[1] +
         at[2] * image.strides[2];
}

// The position in `taken`, the image that taps move over, for a position of the other one; false if it is outside.
__device__ bool take(const Geometry& g, const Image& taken, const int64_t* at, const int64_t* tap, int64_t* from) {
  for (int axis = 0; axis < kAxes; ++axis) {
    from[axis] = at[axis] * g.stride[axis] - g.padding[axis] + tap[axis] * g.dilation[axis];
    if (from[axis] < 0 || from[axis] >= taken.sizes[axis]) return false;
  }
  return true;
}

// The same from the other side: the position that takes `at` by a tap.
__device__ bool give(const Geometry& g, const Image& giving, const int64_t* at, const int64_t* tap, int64_t* from) {
  for (int axis = 0; axis < kAxes; ++axis) {
    const int64_t moved = at[axis] + g.padding[axis] - tap[axis] * g.dilation[axis];
    from[axis] = moved / g.stride[axis];
    if (moved < 0 || from[axis] * g.stride[axis] != moved || from[axis] >= giving.sizes[axis]) return false;
  }
  return true;
}

__device__ void split(int64_t index, const int64_t* sizes, int64_t* at) {
  for (int axis = kAxes - 1; axis >= 0; --axis) {
    at[axis] = index % sizes[axis];
    index /= sizes[axis];
  }
}

template <class T>
__global__ __launch_bounds__(kThreads) void conv_points(const Problem p, int64_t count) {
  const Geometry& g = p.g;
  const int64_t positions = g.y.sizes[0] * g.y.sizes[1] * g.y.sizes[2];
  for (int64_t i = first_item(); i < count; i += item_step()) {
    const int64_t channel = i / positions % g.y.channels, batch = i / positions / g.y.channels;
    const int64_t inputs = g.x.channels / g.groups, outputs = g.y.channels / g.groups, group = channel / outputs;
    int64_t at[kAxes], tap[kAxes], from[kAxes];
    split(i % positions, g.y.sizes, at);
    float sum = p.bias ? widen(static_cast<const T*>(p.bias)[channel * p.bias_stride]) : 0.0f;
    for (int64_t t = 0; t < g.kernel[0] * g.kernel[1] * g.kernel[2]; ++t) {
      split(t, g.kernel, tap);
      if (!(g.is_transposed ? give(g, g.x, at, tap, from) : take(g, g.x, at, tap, from))) continue;
      const T* x = reinterpret_cast<const T*>(g.x.data) + place(g.x, batch, group * inputs, from);
      const T* w = static_cast<const T*>(p.weight_data) + group * p.weights.group + (channel % outputs) * p.weights.output +
                   tap[0] * p.weights.tap[0] + tap[1] * p.weights.tap[1] + tap[2] * p.weights.tap[2];
      for (int64_t c = 0; c < inputs; ++c) {
        sum = fmaf(widen(x[c * g.x.channel_stride]), widen(w[c * p.weights.input]), sum);
      }
    }
    reinterpret_cast<T*>(g.y.data)[place(g.y, batch, channel, at)] = narrow<T>(sum);
  }
}

// A block computes one number of the gradient: its threads share the pixels, and add their sums in a fixed order.
template <class T>
__global__ __launch_bounds__(kThreads) void conv_weight_points(const Problem p) {
  __shared__ float sums[kThreads];
  const Geometry& g = p.g;
  const int64_t taps = g.kernel[0] * g.kernel[1] * g.kernel[2];
  const int64_t inputs = g.x.channels / g.groups, outputs = g.y.channels / g.groups;
  const int64_t block = blockIdx.x, t = block % taps, output = block / taps % outputs, input = block / taps / outputs % inputs;
  const int64_t group = block / taps / outputs / inputs;
  const Image& given = g.is_transposed ? g.x : g.y;
  const Image& taken = g.is_transposed ? g.y : g.x;
  const int64_t given_channel = g.is_transposed ? group * inputs + input : group * outputs + output;
  const int64_t taken_channel = g.is_transposed ? group * outputs + output : group * inputs + input;
  const int64_t positions = given.sizes[0] * given.sizes[1] * given.sizes[2];
  int64_t at[kAxes], tap[kAxes], from[kAxes];
  split(t, g.kernel, tap);
  float sum = 0;
  for (int64_t i = threadIdx.x; i < positions * given.batch; i += kThreads) {
    split(i % positions, given.sizes, at);
    if (!take(g, taken, at, tap, from)) continue;
    const float a = widen(reinterpret_cast<const T*>(given.data)[place(given, i / positions, given_channel, at)]);
    const float b = widen(reinterpret_cast<const T*>(taken.data)[place(taken, i / positions, taken_channel, from)]);
    sum = fmaf(a, b, sum);
  }
  sums[threadIdx.x] = sum;
  for (int width = kThreads / 2; width > 0; width /= 2) {
    __syncthreads();
    if (static_cast<int>(threadIdx.x) < width) sums[threadIdx.x] += sums[threadIdx.x + width];
  }
  if (threadIdx.x != 0) return;
  T* const w = static_cast<T*>(p.weight_data) + group * p.weights.group + output * p.weights.output + input * p.weights.input;
  w[tap[0] * p.weights.tap[0] + tap[1] * p.weights.tap[1] + tap[2] * p.weights.tap[2]] = narrow<T>(sums[0]);
}

template <class T>
Status launch_conv(const OpCall& call) {
  const int64_t count = call.outputs[0].numel;
  if (count == 0) return {};
  Problem problem{geometry_of_conv(call), {}, call.inputs[1].data, nullptr, 0};
  problem.weights = strides_of_weights(problem.g, call.inputs[1]);
  if (call.num_inputs == 3) {
    problem.bias = call.inputs[2].data;
    problem.bias_stride = call.inputs[2].strides[0];
  }
  return launch(conv_points<T>, item_shape(count), call.stream, problem, count);
}

template <class T>
Status launch_weight_gradient(const OpCall& call) {
  if (call.outputs[0].numel == 0) return {};
  Problem problem{geometry_of_weight_gradient(call), {}, call.outputs[0].data, nullptr, 0};
  problem.weights = strides_of_weights(problem.g, call.outputs[0]);
  return launch(conv_weight_points<T>, {dim3(unsigned(call.outputs[0].numel)), dim3(kThreads)}, call.stream, problem);
}

template <class T>
Status supports_weight_gradient(const OpCall& call) {
  NPU_TRY(check_weight_gradient(call));
  if (call.outputs[0].numel < int64_t{1} << 31) return {};
  return Status::not_implemented("the weights have 2^31 numbers or more");
}

template <class T>
void add_kernels(const std::string& suffix, std::vector<KernelPtr>* kernels) {
  kernels->push_back(make_kernel({kConv, "conv" + suffix, DeviceType::Cuda},
                                 {check_conv, launch_conv<T>, conv_cost, nullptr, load_kernel<conv_points<T>>}, kDTypeOf<T>));
  kernels->push_back(make_kernel({kWeightGradient, "conv_weight_gradient" + suffix, DeviceType::Cuda},
                                 {supports_weight_gradient<T>, launch_weight_gradient<T>, weight_gradient_cost, nullptr,
                                  load_kernel<conv_weight_points<T>>}, kDTypeOf<T>));
}

}  // namespace

std::vector<KernelPtr> cuda_kernels() {
  std::vector<KernelPtr> kernels;
  add_kernels<float>(".f32.cuda", &kernels);
  add_kernels<__half>(".f16.cuda", &kernels);
  add_kernels<__nv_bfloat16>(".bf16.cuda", &kernels);
  return kernels;
}

}  // namespace npu::conv
