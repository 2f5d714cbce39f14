// Sort on CUDA.
#include "ops/index/cuda_index.cuh"
#include "ops/index/cuda_numbers.cuh"
#include "ops/index/cuda_sort.cuh"

namespace npu::indexing {
namespace {

template <class T>
struct RowKeys {
  const T* x;
  SortLayout layout;
  bool descending;

  __device__ int64_t offset(int64_t row, int64_t i, int64_t size) const {
    const int64_t outer = row / layout.inner;
    return (outer * size + i) * layout.inner + row - outer * layout.inner;
  }
  __device__ uint64_t operator()(int64_t row, int64_t i) const {
    const auto key = key_of(x[offset(row, i, layout.size)]);
    return descending ? ~key : key;
  }
};

template <class T>
__global__ void __launch_bounds__(kThreads)
    take_sorted(const RowKeys<T> keys, const Entry* sorted, T* values, int64_t* indices, int64_t n) {
  const int64_t at = first_item();
  if (at >= n) return;
  const int64_t row = at / keys.layout.kept, i = at - row * keys.layout.kept;
  const auto place = static_cast<int64_t>(sorted[row * keys.layout.size + i].place);
  const int64_t to = keys.offset(row, i, keys.layout.kept);
  values[to] = keys.x[keys.offset(row, place, keys.layout.size)];
  indices[to] = place;
}

template <class T>
Status run_sort(const OpCall& call) {
  const SortLayout layout = layout_of_sort(call);
  const RowKeys<T> keys{static_cast<const T*>(call.inputs[0].data), layout,
                        attrs_of<SortAttrs>(call).descending != 0};
  const Entry* sorted = nullptr;
  NPU_TRY(sort_entries(keys, layout.rows(), layout.size, call, &sorted));
  const int64_t n = call.outputs[0].numel;
  return launch(take_sorted<T>, item_shape(n), call.stream, keys, sorted,
                static_cast<T*>(call.outputs[0].data), static_cast<int64_t*>(call.outputs[1].data), n);
}

Status launch_sort(const OpCall& call) {
  if (call.outputs[0].numel == 0) return {};
  return with_device_number(call.inputs[0].dtype, [&](auto x) { return run_sort<decltype(x)>(call); });
}

Status load_sort(const OpCall& call, void** state) {
  NPU_TRY(load_kernel<merge_runs>(call, state));
  return with_device_number(call.inputs[0].dtype, [&](auto x) {
    using T = decltype(x);
    NPU_TRY(load_kernel<sort_tiles<RowKeys<T>>>(call, state));
    return load_kernel<take_sorted<T>>(call, state);
  });
}

uint64_t workspace_of_sort(const OpCall& call) { return sorted_bytes(call.inputs[0].numel); }

}  // namespace

std::vector<KernelPtr> sorting_cuda_kernels() {
  return {make_kernel({kSort, "sort.any.cuda", DeviceType::Cuda},
                      {sort_supported, launch_sort, nullptr, workspace_of_sort, load_sort})};
}

}  // namespace npu::indexing
