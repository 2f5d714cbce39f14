// IndexPut, EmbeddingBwd and Scatter on the host. Threads own parts of the output, and each visits all
// indices in their order.
#include "ops/host_copy.h"
#include "ops/host_simd.h"
#include "ops/index/host_index.h"
#include "ops/index/host_numbers.h"

namespace npu::indexing {
namespace {

template <class T>
struct AddRow {
  [[gnu::always_inline]] static inline void run(const T* __restrict x, T* __restrict y, int64_t n) {
    for (int64_t i = 0; i < n; ++i) y[i] = sum_of(y[i], x[i]);
  }
};

template <class T>
struct Add {
  static void row(const T* x, T* y, int64_t n) { run_simd<AddRow<T>>(x, y, n); }
  static void item(const T* x, T* y) { *y = sum_of(*y, *x); }
};

template <class T>
struct Set {
  static void row(const T* x, T* y, int64_t n) { std::memcpy(y, x, size_t(n) * sizeof(T)); }
  static void item(const T* x, T* y) { *y = *x; }
};

// Calls f with an item type and what to do with it: Add of numbers, or Set of any items.
template <class F>
Status with_action(DType dtype, bool adds, F f) {
  if (!adds) return with_item(dtype, [&](auto item) { return f(Set<decltype(item)>{}, item); });
  return with_number(dtype, [&](auto number) { return f(Add<decltype(number)>{}, number); });
}

// The rows of y from `begin` to `end`.
template <class Action, class T, class I>
void put_rows(const SlotLayout& layout, const Slots<I>& slots, const T* values, T* y, int64_t begin,
              int64_t end) {
  for (int64_t outer = begin / layout.slots; outer * layout.slots < end; ++outer) {
    const int64_t first = outer * layout.slots;
    for (int64_t i = 0; i < layout.count; ++i) {
      const int64_t slot = slots[i], row = first + slot;
      if (row < begin || row >= end || slot == layout.skipped) continue;
      const T* from = values + (outer * layout.count + i) * layout.inner;
      if (layout.inner == 1) Action::item(from, y + row);
      else Action::row(from, y + row * layout.inner, layout.inner);
    }
  }
}

Status put(const OpCall& call, const SlotLayout& layout, const TensorDesc& values, const TensorDesc* indices,
           bool adds) {
  const TensorDesc& y = call.outputs[0];
  if (values.numel == 0) return {};
  return with_index(indices[0], [&](auto index) {
    const Slots<decltype(index)> slots(layout, indices);
    return with_action(y.dtype, adds, [&](auto action, auto item) {
      using T = decltype(item);
      const auto put_some = [&](int64_t begin, int64_t end) {
        put_rows<decltype(action)>(layout, slots, static_cast<const T*>(values.data), static_cast<T*>(y.data),
                                   begin, end);
      };
      const int64_t rows = layout.outer * layout.slots;
      if (values.numel <= kLeastItems) put_some(0, rows);  // few rows of many
      else parallel_rows(rows, layout.inner, put_some);
      return Status();
    });
  });
}

// The rows of y that are about to be written, in the order of the values.
Status save(const SlotLayout& layout, const TensorDesc& y, const TensorDesc* indices, const TensorDesc& saved) {
  if (saved.numel == 0) return {};
  const int64_t bytes = layout.inner * item_bytes(y.dtype);
  return with_index(indices[0], [&](auto index) {
    const Slots<decltype(index)> slots(layout, indices);
    parallel_rows(layout.outer * layout.count, layout.inner, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const int64_t outer = row / layout.count, slot = slots[row - outer * layout.count];
        copy_row(static_cast<const char*>(y.data) + (outer * layout.slots + slot) * bytes,
                 static_cast<char*>(saved.data) + row * bytes, bytes);
      }
    });
    return Status();
  });
}

void start_from(const TensorDesc& x, const TensorDesc& y) {
  if (x.data == y.data || y.numel == 0) return;
  std::memcpy(y.data, x.data, size_t(nbytes(y)));
}

Status launch_put(const OpCall& call) {
  const SlotLayout layout = layout_of_put(call);
  NPU_TRY(check_indices(layout, call.inputs + 2));
  start_from(call.inputs[0], call.outputs[0]);
  if (call.num_outputs == 2) NPU_TRY(save(layout, call.outputs[0], call.inputs + 2, call.outputs[1]));
  return put(call, layout, call.inputs[1], call.inputs + 2, attrs_of<PutAttrs>(call).accumulate);
}

Status launch_embedding_bwd(const OpCall& call) {
  const SlotLayout layout = layout_of_embedding_bwd(call);
  NPU_TRY(check_indices(layout, call.inputs + 1));
  if (call.outputs[0].numel == 0) return {};
  std::memset(call.outputs[0].data, 0, size_t(nbytes(call.outputs[0])));
  return put(call, layout, call.inputs[0], call.inputs + 1, true);
}

// The elements of y from `begin` to `end`.
template <class Action, class T, class I>
void scatter(const WalkLayout& walk, const I* index, const T* source, T* y, int64_t begin, int64_t end) {
  const int last = walk.rank - 1;
  const int64_t n = walk.shape[last], along = walk.whole_strides[walk.axis];
  const int64_t step = last == walk.axis ? 0 : walk.whole_strides[last],
                source_step = walk.source_strides[last];
  const bool is_all = begin == 0 && end == walk.whole_numel;
  walk_tiles(walk, 0, rows_of(walk), sizeof(T),
             [&](int64_t row, int64_t whole, int64_t from, int64_t first, int64_t limit) {
    const T* values = source + from;
    const I* places = index + row * n;
    T* target = y + whole;
    if (is_all && along == 1 && step == 0 && source_step == 1) {
      for (int64_t i = first; i < limit; ++i) Action::item(values + i, target + places[i]);
      return;
    }
    for (int64_t i = first; i < limit; ++i) {
      const int64_t to = int64_t{places[i]} * along + i * step;
      if (is_all || (whole + to >= begin && whole + to < end)) Action::item(values + i * source_step, target + to);
    }
  });
}

Status launch_scatter(const OpCall& call) {
  const WalkLayout walk = layout_of_scatter(call);
  NPU_TRY(check_index(call.inputs[1], walk.axis, walk.axis_size, false));
  const TensorDesc& y = call.outputs[0];
  start_from(call.inputs[0], y);
  return with_index(call.inputs[1], [&](auto number) {
    using I = decltype(number);
    return with_action(y.dtype, attrs_of<ScatterAttrs>(call).accumulate, [&](auto action, auto item) {
      using T = decltype(item);
      parallel_rows(y.numel, 1, [&](int64_t begin, int64_t end) {
        scatter<decltype(action)>(walk, static_cast<const I*>(call.inputs[1].data),
                                  static_cast<const T*>(call.inputs[2].data), static_cast<T*>(y.data), begin,
                                  end);
      });
      return Status();
    });
  });
}

}  // namespace

std::vector<KernelPtr> writing_host_kernels() {
  return {make_kernel({kIndexPut, "index_put.any.host", DeviceType::Host}, {put_supported, launch_put}),
          make_kernel({kEmbeddingBwd, "embedding_bwd.any.host", DeviceType::Host}, {embedding_bwd_supported, launch_embedding_bwd}),
          make_kernel({kScatter, "scatter.any.host", DeviceType::Host}, {scatter_supported, launch_scatter})};
}

}  // namespace npu::indexing
