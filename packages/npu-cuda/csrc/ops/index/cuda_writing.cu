// IndexPut, EmbeddingBwd and Scatter on CUDA. The slots that are written are sorted, with the places of their
// values, so that one thread writes all values of a slot in their order.
#include "ops/copy/copy.h"
#include "ops/index/cuda_index.cuh"
#include "ops/index/cuda_numbers.cuh"
#include "ops/index/cuda_sort.cuh"

namespace npu::indexing {
namespace {

template <class T>
struct Add {
  __device__ static T of(T a, T b) { return sum_of(a, b); }
};

template <class T>
struct Set {
  __device__ static T of(T, T b) { return b; }
};

struct SlotKeys {
  DeviceSlots slots;
  __device__ uint64_t operator()(int64_t, int64_t place) const {
    return static_cast<uint64_t>(slots(static_cast<uint32_t>(place)));
  }
};

struct WalkKeys {
  DeviceWalk walk;
  __device__ uint64_t operator()(int64_t, int64_t place) const {
    return static_cast<uint64_t>(walk(static_cast<uint32_t>(place)).whole);
  }
};

struct RowSources {
  int64_t inner;
  __device__ int64_t operator()(uint64_t place) const { return static_cast<int64_t>(place) * inner; }
};

struct WalkSources {
  DeviceWalk walk;
  __device__ int64_t operator()(uint64_t place) const { return walk(static_cast<uint32_t>(place)).source; }
};

struct Runs {
  const Entry* entries;
  int64_t count, inner, slots, values_of_outer, skipped, items;
};

// One thread for each entry, item of a slot and outer place; the first entry of a slot does the work of all.
template <class Action, class T, class Sources>
__global__ void __launch_bounds__(kThreads, 1)
    write_runs(const T* values, T* y, const Runs runs, const Sources sources) {
  const int64_t item = first_item();
  if (item >= runs.items) return;
  const int64_t column = item % runs.inner, row = item / runs.inner, at = row % runs.count,
                outer = row / runs.count;
  const Entry first = runs.entries[at];
  if (at > 0 && runs.entries[at - 1].key == first.key) return;
  const auto slot = static_cast<int64_t>(first.key);
  if (slot == runs.skipped) return;
  T* to = y + (outer * runs.slots + slot) * runs.inner + column;
  T result = *to;
  for (int64_t i = at; i < runs.count && runs.entries[i].key == first.key; ++i) {
    result =
        Action::of(result, values[outer * runs.values_of_outer + sources(runs.entries[i].place) + column]);
  }
  *to = result;
}

// Calls f with an action and an item.
template <class F>
Status with_action(DType dtype, bool adds, F f) {
  if (adds) return with_device_number(dtype, [&](auto item) { return f(Add<decltype(item)>{}, item); });
  return with_item_of(item_bytes(dtype), [&](auto item) { return f(Set<decltype(item)>{}, item); });
}

template <class Keys, class Sources>
struct Writing {
  Keys keys;
  Sources sources;
  Runs runs;
  bool adds;

  Status launch_on(const OpCall& call, const TensorDesc& values) {
    NPU_TRY(sort_entries(keys, 1, runs.count, call, &runs.entries));
    return with_action(values.dtype, adds, [&](auto action, auto item) {
      using T = decltype(item);
      return launch(write_runs<decltype(action), T, Sources>, item_shape(runs.items), call.stream,
                    static_cast<const T*>(values.data), static_cast<T*>(call.outputs[0].data), runs, sources);
    });
  }
};

template <class Keys, class Sources>
Status load_writing(const OpCall& call, void** state, bool adds) {
  NPU_TRY(load_copies(call, state));
  NPU_TRY(load_kernel<sort_tiles<Keys>>(call, state));
  NPU_TRY(load_kernel<merge_runs>(call, state));
  return with_action(call.outputs[0].dtype, adds, [&](auto action, auto item) {
    return load_kernel<write_runs<decltype(action), decltype(item), Sources>>(call, state);
  });
}

Status start_from(const OpCall& call) {
  const TensorDesc &x = call.inputs[0], &y = call.outputs[0];
  return x.data == y.data ? Status() : copy_on_cuda(x, y, call.stream);
}

Status put(const OpCall& call, const SlotLayout& layout, const TensorDesc& values, const TensorDesc* indices,
           bool adds) {
  if (values.numel == 0) return {};
  const Runs runs{nullptr,        layout.count, layout.inner, layout.slots, layout.count * layout.inner,
                  layout.skipped, values.numel};
  Writing<SlotKeys, RowSources> writing{{device_slots(layout, indices)}, {layout.inner}, runs, adds};
  return writing.launch_on(call, values);
}

// What is about to be written, in the order of the values: a thread for each item.
template <class T>
__global__ void __launch_bounds__(kThreads, 1)
    save_items(const T* y, T* saved, const DeviceSlots slots, const Runs runs) {
  const int64_t item = first_item();
  if (item >= runs.items) return;
  const int64_t column = item % runs.inner, row = item / runs.inner, at = row % runs.count,
                outer = row / runs.count;
  saved[item] = y[(outer * runs.slots + slots(static_cast<uint32_t>(at))) * runs.inner + column];
}

Status save(const OpCall& call, const SlotLayout& layout, const TensorDesc& saved) {
  if (saved.numel == 0) return {};
  const Runs runs{nullptr, layout.count, layout.inner, layout.slots, 0, -1, saved.numel};
  return with_item_of(item_bytes(saved.dtype), [&](auto item) {
    using T = decltype(item);
    return launch(save_items<T>, item_shape(runs.items), call.stream, static_cast<const T*>(call.outputs[0].data),
                  static_cast<T*>(saved.data), device_slots(layout, call.inputs + 2), runs);
  });
}

Status launch_put(const OpCall& call) {
  NPU_TRY(start_from(call));
  if (call.num_outputs == 2) NPU_TRY(save(call, layout_of_put(call), call.outputs[1]));
  return put(call, layout_of_put(call), call.inputs[1], call.inputs + 2, attrs_of<PutAttrs>(call).accumulate);
}

Status load_put(const OpCall& call, void** state) {
  if (call.num_outputs == 2) {
    NPU_TRY(with_item_of(item_bytes(call.outputs[1].dtype), [&](auto item) {
      return load_kernel<save_items<decltype(item)>>(call, state);
    }));
  }
  return load_writing<SlotKeys, RowSources>(call, state, attrs_of<PutAttrs>(call).accumulate);
}

Status launch_embedding_bwd(const OpCall& call) {
  const TensorDesc& dw = call.outputs[0];
  if (dw.numel == 0) return {};
  NPU_TRY(cuda_status(cudaMemsetAsync(dw.data, 0, size_t(nbytes(dw)), static_cast<cudaStream_t>(call.stream)),
                      "cudaMemsetAsync"));
  return put(call, layout_of_embedding_bwd(call), call.inputs[0], call.inputs + 1, true);
}

Status load_embedding_bwd(const OpCall& call, void** state) {
  return load_writing<SlotKeys, RowSources>(call, state, true);
}

Status launch_scatter(const OpCall& call) {
  NPU_TRY(start_from(call));
  const WalkLayout layout = layout_of_scatter(call);
  if (layout.numel == 0) return {};
  const DeviceWalk walk = device_walk(layout, call.inputs[1]);
  const Runs runs{nullptr, layout.numel, 1, 0, 0, -1, layout.numel};
  Writing<WalkKeys, WalkSources> writing{{walk}, {walk}, runs, attrs_of<ScatterAttrs>(call).accumulate != 0};
  return writing.launch_on(call, call.inputs[2]);
}

Status load_scatter(const OpCall& call, void** state) {
  return load_writing<WalkKeys, WalkSources>(call, state, attrs_of<ScatterAttrs>(call).accumulate);
}

template <int kInput>
uint64_t workspace_of(const OpCall& call) {
  return sorted_bytes(call.inputs[kInput].numel);
}

}  // namespace

std::vector<KernelPtr> writing_cuda_kernels() {
  return {
      make_kernel({kIndexPut, "index_put.any.cuda", DeviceType::Cuda},
                  {supported_near<put_supported>, launch_put, nullptr, workspace_of<2>, load_put}),
      make_kernel({kEmbeddingBwd, "embedding_bwd.any.cuda", DeviceType::Cuda},
                  {supported_near<embedding_bwd_supported>, launch_embedding_bwd, nullptr, workspace_of<1>,
                   load_embedding_bwd}),
      make_kernel({kScatter, "scatter.any.cuda", DeviceType::Cuda},
                  {supported_near<scatter_supported>, launch_scatter, nullptr, workspace_of<1>, load_scatter})};
}

}  // namespace npu::indexing
