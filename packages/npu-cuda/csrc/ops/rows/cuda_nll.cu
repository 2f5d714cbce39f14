#include "ops/kernel_loading.h"
#include "ops/pointwise/cuda_rows.cuh"
#include "ops/rows/nll.h"

namespace npu::rows {
namespace {

using pointwise::Class;
using pointwise::Element;
using pointwise::NumberOf;
using pointwise::Value;

constexpr int64_t kRowsOfThread = 2;  // at least, before there are kThreads blocks
constexpr int kWarps = kThreads / 32;
constexpr int64_t kPart = 4096;  // classes

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

  // Returns the weight of a row that is not ignored. A class that is not there ends the kernel with an error, as in PyTorch.
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

// Of the rows of a block, or of everything.
template <class Number>
struct Losses {
  Number loss, weights;
};

template <class Number>
__device__ void write_losses(const DeviceNll& call, Losses<Number> total) {
  const bool is_reduced = call.sizes.is_reduced;
  call.total.write(0, is_reduced ? total.weights : Number(0));
  if (is_reduced) call.to.write(0, call.is_mean ? total.loss / total.weights : total.loss);
}

// Each thread adds rows of its own, and the block the threads. Where there are several blocks, their sums are
// added by add_losses, in the same order each time.
template <class Number>
__global__ void __launch_bounds__(kThreads) nll_forward(const DeviceNll call, Losses<Number>* partial) {
  __shared__ Number shared[kThreads];
  const NllSizes& sizes = call.sizes;
  Number loss = 0, weights = 0;
  for (int64_t row = first_item(); row < sizes.rows; row += item_step()) {
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
  if (gridDim.x == 1) write_losses<Number>(call, {loss, weights});
  else partial[blockIdx.x] = {loss, weights};
}

// A thread for each block.
template <class Number>
__global__ void __launch_bounds__(kThreads)
    add_losses(const DeviceNll call, const Losses<Number>* partial, int count) {
  __shared__ Number shared[kThreads];
  const bool is_one = static_cast<int>(threadIdx.x) < count;
  const Number loss = total_of_block(is_one ? partial[threadIdx.x].loss : Number(0), shared);
  const Number weights = total_of_block(is_one ? partial[threadIdx.x].weights : Number(0), shared);
  if (threadIdx.x == 0) write_losses<Number>(call, {loss, weights});
}

// A warp for each part of a row: zeros, and then what is not 0.
template <class Number>
__global__ void __launch_bounds__(kThreads)
    nll_backward(const DeviceNll call, unsigned parts, int item_bytes, bool is_wide) {
  const NllSizes& sizes = call.sizes;
  const int64_t row = int64_t{blockIdx.x / parts} * kWarps + threadIdx.x / 32;
  if (row >= sizes.rows) return;  // a whole warp
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t begin = int64_t{blockIdx.x % parts} * kPart, end = min(begin + kPart, sizes.classes);
  const int64_t start = row * sizes.row_stride;
  if (is_wide) {
    auto* bytes = static_cast<char*>(call.to.data) + start * item_bytes;
    for (int64_t at = begin * item_bytes + lane * 16; at < end * item_bytes; at += 32 * 16)
      *reinterpret_cast<uint4*>(bytes + at) = uint4{};
  } else {
    for (int64_t at = begin + lane; at < end; at += 32)
      call.to.write(start + at * sizes.class_stride, Number(0));
  }
  __syncwarp();
  const int64_t target = call.targets[row];
  if (lane != 0 || target == call.ignored) return;
  const Number weight = call.weight_of<Number>(target);
  if (target < begin || target >= end) return;
  Number slope = -call.from.read<Number>(sizes.is_reduced ? 0 : row) * weight;
  if (call.is_mean) slope /= call.total.read<Number>(0);
  call.to.write(start + target * sizes.class_stride, slope);
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
  return expect_near(call);
}

int64_t forward_blocks(const OpCall& call) {
  return std::clamp<int64_t>(call.inputs[1].numel / (kThreads * kRowsOfThread), 1, kThreads);
}

template <class Number>
uint64_t forward_workspace(const OpCall& call) {
  const int64_t blocks = forward_blocks(call);
  return blocks == 1 ? 0 : uint64_t(blocks) * sizeof(Losses<Number>);
}

template <class Number>
Status launch_forward(const OpCall& call) {
  const DeviceNll device = device_call(call, false);
  const auto blocks = static_cast<unsigned>(forward_blocks(call));
  auto* partial = static_cast<Losses<Number>*>(call.workspace);
  NPU_TRY(launch(nll_forward<Number>, {dim3(blocks), dim3(kThreads)}, call.stream, device, partial));
  if (blocks == 1) return {};
  return launch(add_losses<Number>, {dim3(1), dim3(kThreads)}, call.stream, device, partial, int(blocks));
}

// Whether rows are aligned bytes that are written 16 at once.
bool has_wide_rows(const TensorDesc& dx, const NllSizes& sizes) {
  const int64_t bytes = item_bytes(dx.dtype);
  return reinterpret_cast<uintptr_t>(dx.data) % 16 == 0 && sizes.class_stride == 1 &&
         sizes.row_stride * bytes % 16 == 0 && sizes.classes * bytes % 16 == 0;
}

template <class Number>
Status launch_backward(const OpCall& call) {
  const TensorDesc& dx = call.outputs[0];
  if (dx.numel == 0) return {};
  const NllSizes sizes = nll_sizes(call, true);
  const unsigned parts = blocks_for(sizes.classes, kPart).x;
  return launch(nll_backward<Number>, {dim3(blocks_for(sizes.rows, kWarps).x * parts), dim3(kThreads)},
                call.stream, device_call(call, true), parts, int(item_bytes(dx.dtype)),
                has_wide_rows(dx, sizes));
}

template <class Number>
Status load_forward(const OpCall& call, void** state) {
  NPU_TRY(load_kernel<add_losses<Number>>(call, state));
  return load_kernel<nll_forward<Number>>(call, state);
}

Cost cost(const OpCall& call) { return cost_of(call, double(call.inputs[1].numel)); }

template <Class type>
void add_kernels(std::vector<KernelPtr>* kernels) {
  using Number = NumberOf<type>;
  const std::string suffix = std::string(".") + pointwise::class_name(type) + ".cuda";
  kernels->push_back(make_kernel({OpKind{248}, "nll_loss" + suffix, DeviceType::Cuda, 5},
                                 {supported<false, type>, launch_forward<Number>, cost,
                                  forward_workspace<Number>, load_forward<Number>}));
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
