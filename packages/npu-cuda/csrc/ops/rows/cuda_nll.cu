#include "ops/kernel_loading.h"
#include "ops/pointwise/cuda_rows.cuh"
#include "ops/rows/nll.h"

namespace npu::rows {
namespace {

using pointwise::Class;
using pointwise::Element;
using pointwise::NumberOf;
using pointwise::Value;

struct DeviceOperand {
  void* data;
  Element element;

  template <class Number>
  __device__ Number read(int64_t i) const {
    return pointwise::read_element<Number>(data, element, static_cast<uint32_t>(i)).raw;
  }
  template <class Number>
  __device__ void write(int64_t i, Number number) const {
    pointwise::write_element(Value<Number>::of(number), data, element, static_cast<uint32_t>(i));
  }
};

// x and y, dy and dx.
struct DeviceNll {
  DeviceOperand from, to, total, weight;
  const int64_t* targets;
  NllSizes sizes;
  int64_t ignored;
  bool is_mean;

  // Of a row that is not ignored. A class that is not there ends the kernel with an error, as in PyTorch.
  template <class Number>
  __device__ Number weight_of(int64_t target) const {
    if (target < 0 || target >= sizes.classes) __trap();
    return sizes.has_weight ? weight.read<Number>(target) : Number(1);
  }
};

template <class Number>
__device__ Number total_of_block(Number value, Number* shared) {
  shared[threadIdx.x] = value;
  __syncthreads();
  for (unsigned half = kThreads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) shared[threadIdx.x] += shared[threadIdx.x + half];
    __syncthreads();
  }
  value = shared[0];
  __syncthreads();
  return value;
}

// One block: each thread adds rows of its own, and the block the threads.
template <class Number>
__global__ void __launch_bounds__(kThreads) nll_forward(const DeviceNll call) {
  __shared__ Number shared[kThreads];
  const NllSizes& sizes = call.sizes;
  Number loss = 0, weights = 0;
  for (int64_t row = threadIdx.x; row < sizes.rows; row += kThreads) {
    const int64_t target = call.targets[row];
    Number of_row = 0;
    if (target != call.ignored) {
      const Number weight = call.weight_of<Number>(target);
      of_row = -call.from.read<Number>(row * sizes.row_stride + target * sizes.class_stride) * weight;
      weights += weight;
    }
    loss += of_row;
    if (!sizes.is_reduced) call.to.write(row, of_row);
  }
  loss = total_of_block(loss, shared);
  weights = total_of_block(weights, shared);
  if (threadIdx.x != 0) return;
  call.total.write(0, sizes.is_reduced ? weights : Number(0));
  if (sizes.is_reduced) call.to.write(0, call.is_mean ? loss / weights : loss);
}

template <class Number>
__global__ void __launch_bounds__(kThreads) nll_backward(const DeviceNll call) {
  const NllSizes& sizes = call.sizes;
  for (int64_t i = first_item(); i < sizes.rows * sizes.classes; i += item_step()) {
    const int64_t row = i / sizes.classes, of_class = i % sizes.classes;
    const int64_t target = call.targets[row];
    Number slope = 0;
    if (target != call.ignored) {
      const Number weight = call.weight_of<Number>(target);
      if (target == of_class) slope = -call.from.read<Number>(sizes.is_reduced ? 0 : row) * weight;
      if (target == of_class && call.is_mean) slope /= call.total.read<Number>(0);
    }
    call.to.write(row * sizes.row_stride + of_class * sizes.class_stride, slope);
  }
}

DeviceOperand operand_of(const TensorDesc& tensor) {
  return {tensor.data, pointwise::element_of(tensor.dtype)};
}

DeviceNll device_call(const OpCall& call, bool is_gradient) {
  const auto attrs = attrs_of<NllAttrs>(call);
  const NllSizes sizes = nll_sizes(call, is_gradient);
  return {operand_of(call.inputs[0]),
          operand_of(call.outputs[0]),
          operand_of(is_gradient ? call.inputs[call.num_inputs - 1] : call.outputs[1]),
          operand_of(call.inputs[sizes.has_weight ? 2 : 0]),
          static_cast<const int64_t*>(call.inputs[1].data),
          sizes,
          attrs.ignore_index,
          sizes.is_reduced && attrs.reduction == 1};
}

template <bool is_gradient, Class type>
Status supported(const OpCall& call) {
  NPU_TRY(check_nll(call, is_gradient, type));
  const TensorDesc& x = is_gradient ? call.outputs[0] : call.inputs[0];
  if (span_bytes(x) / item_bytes(x.dtype) < int64_t{1} << 31) return {};
  return Status::not_implemented("x spans 2^31 elements or more");
}

template <class Number>
Status launch_forward(const OpCall& call) {
  return launch(nll_forward<Number>, {dim3(1), dim3(kThreads)}, call.stream, device_call(call, false));
}

template <class Number>
Status launch_backward(const OpCall& call) {
  if (call.outputs[0].numel == 0) return {};
  return launch(nll_backward<Number>, item_shape(call.outputs[0].numel), call.stream,
                device_call(call, true));
}

Cost cost(const OpCall& call) { return cost_of(call, double(call.inputs[1].numel)); }

template <Class type>
void add_kernels(std::vector<KernelPtr>* kernels) {
  using Number = NumberOf<type>;
  const std::string suffix = std::string(".") + pointwise::class_name(type) + ".cuda";
  kernels->push_back(make_kernel(
      {OpKind{248}, "nll_loss" + suffix, DeviceType::Cuda, 5},
      {supported<false, type>, launch_forward<Number>, cost, nullptr, load_kernel<nll_forward<Number>>}));
  kernels->push_back(make_kernel(
      {OpKind{249}, "nll_loss_bwd" + suffix, DeviceType::Cuda, 5},
      {supported<true, type>, launch_backward<Number>, cost, nullptr, load_kernel<nll_backward<Number>>}));
}

}  // namespace

std::vector<KernelPtr> nll_cuda_kernels() {
  std::vector<KernelPtr> kernels;
  add_kernels<pointwise::kFloat32>(&kernels);
  add_kernels<pointwise::kFloat64>(&kernels);
  return kernels;
}

}  // namespace npu::rows
