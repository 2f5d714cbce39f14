// IndexSelect and Gather on CUDA: a thread for some items of the output.
#include "ops/index/cuda_index.cuh"

namespace npu::indexing {
namespace {

constexpr int kItems = 4;  // of a thread of select_items

template <class T>
__global__ void __launch_bounds__(kThreads)
    select_items(const T* x, T* y, const DeviceSlots slots, int64_t slots_of_outer, FastDivision inner,
                 FastDivision count, uint32_t n) {
  const uint32_t first = blockIdx.x * (kThreads * kItems) + threadIdx.x;
  uint32_t outer[kItems], places[kItems], columns[kItems];
#pragma unroll
  for (int j = 0; j < kItems; ++j) {
    uint32_t row;
    inner(min(first + j * kThreads, n - 1), &row, &columns[j]);
    count(row, &outer[j], &places[j]);
  }
  int64_t found[kItems];
  slots.find(places, found);
  T items[kItems];
#pragma unroll
  for (int j = 0; j < kItems; ++j) {
    items[j] = x[(outer[j] * slots_of_outer + found[j]) * inner.divisor + columns[j]];
  }
#pragma unroll
  for (int j = 0; j < kItems; ++j) {
    if (first + j * kThreads < n) y[first + j * kThreads] = items[j];
  }
}

// Bytes of the widest item of which rows consist, and to which the memory is aligned.
int64_t access_of(const OpCall& call, int64_t row_bytes) {
  const int64_t aligned = std::min(call.inputs[0].alignment, call.outputs[0].alignment);
  const int64_t widest = std::min<int64_t>(16, row_bytes & -row_bytes);
  return std::max(std::min(widest, aligned), std::min<int64_t>(aligned, item_bytes(call.inputs[0].dtype)));
}

template <class T>
Status run_select(const OpCall& call, const SlotLayout& layout, int64_t row_bytes) {
  const int64_t inner = row_bytes / int64_t{sizeof(T)}, n = layout.outer * layout.count * inner;
  return launch(select_items<T>, item_shape((n + kItems - 1) / kItems), call.stream,
                static_cast<const T*>(call.inputs[0].data), static_cast<T*>(call.outputs[0].data),
                device_slots(layout, call.inputs + 1), layout.slots,
                FastDivision(static_cast<uint32_t>(inner)), FastDivision(static_cast<uint32_t>(layout.count)),
                static_cast<uint32_t>(n));
}

Status launch_select(const OpCall& call) {
  if (call.outputs[0].numel == 0) return {};
  const SlotLayout layout = layout_of_select(call);
  const int64_t row_bytes = layout.inner * item_bytes(call.inputs[0].dtype);
  return with_item_of(access_of(call, row_bytes),
                      [&](auto item) { return run_select<decltype(item)>(call, layout, row_bytes); });
}

Status load_select(const OpCall& call, void** state) {
  for (const int64_t bytes : {1, 2, 4, 8, 16}) {
    NPU_TRY(with_item_of(bytes,
                         [&](auto item) { return load_kernel<select_items<decltype(item)>>(call, state); }));
  }
  return {};
}

template <class T>
__global__ void __launch_bounds__(kThreads) gather_items(const T* x, T* y, const DeviceWalk walk, int64_t n) {
  const int64_t at = first_item();
  if (at < n) y[at] = x[walk(static_cast<uint32_t>(at)).whole];
}

Status launch_gather(const OpCall& call) {
  const TensorDesc &x = call.inputs[0], &y = call.outputs[0];
  if (y.numel == 0) return {};
  return with_item_of(item_bytes(x.dtype), [&](auto item) {
    using T = decltype(item);
    return launch(gather_items<T>, item_shape(y.numel), call.stream, static_cast<const T*>(x.data),
                  static_cast<T*>(y.data), device_walk(layout_of_gather(call), call.inputs[1]), y.numel);
  });
}

Status load_gather(const OpCall& call, void** state) {
  return with_item_of(item_bytes(call.inputs[0].dtype),
                      [&](auto item) { return load_kernel<gather_items<decltype(item)>>(call, state); });
}

}  // namespace

std::vector<KernelPtr> reading_cuda_kernels() {
  return {make_kernel({kIndexSelect, "index_select.any.cuda", DeviceType::Cuda},
                      {supported_near<select_supported>, launch_select, nullptr, nullptr, load_select}),
          make_kernel({kGather, "gather.any.cuda", DeviceType::Cuda},
                      {supported_near<gather_supported>, launch_gather, nullptr, nullptr, load_gather})};
}

}  // namespace npu::indexing
