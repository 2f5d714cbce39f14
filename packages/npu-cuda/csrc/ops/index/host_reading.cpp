// IndexSelect and Gather on the host.
#include "ops/host_copy.h"
#include "ops/host_simd.h"
#include "ops/index/host_index.h"

namespace npu::indexing {
namespace {

// Rows of one item; longer ones are copied as bytes.
template <class T, class I>
void select_items(const OpCall& call, const SlotLayout& layout) {
  const auto* x = static_cast<const T*>(call.inputs[0].data);
  auto* y = static_cast<T*>(call.outputs[0].data);
  const Slots<I> slots(layout, call.inputs + 1);
  const bool is_plain = layout.depth == 1 && !layout.wraps;
  parallel_rows(layout.outer * layout.count, 1, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end;) {
      const int64_t outer = row / layout.count, first = row - outer * layout.count;
      const int64_t n = std::min(layout.count - first, end - row);
      const T* from = x + outer * layout.slots;
      const I* index = slots.indices[0] + first;
      T* to = y + row;
      if (is_plain) {
        for (int64_t i = 0; i < n; ++i) to[i] = from[index[i]];
      } else {
        for (int64_t i = 0; i < n; ++i) to[i] = from[slots[first + i]];
      }
      row += n;
    }
  });
}

template <class I>
struct CopySlots {
  [[gnu::always_inline]] static inline void run(const char* x, char* y, int64_t bytes, const Slots<I>* slots,
                                                int64_t begin, int64_t end) {
    const SlotLayout& layout = slots->layout;
    for (int64_t row = begin, outer = begin / layout.count, i = begin % layout.count; row < end; ++row) {
      copy_row(x + (outer * layout.slots + (*slots)[i]) * bytes, y + row * bytes, bytes);
      if (++i < layout.count) continue;
      i = 0;
      ++outer;
    }
  }
};

template <class I>
void select_rows(const OpCall& call, const SlotLayout& layout) {
  const int64_t bytes = layout.inner * item_bytes(call.inputs[0].dtype);
  const auto* x = static_cast<const char*>(call.inputs[0].data);
  auto* y = static_cast<char*>(call.outputs[0].data);
  const Slots<I> slots(layout, call.inputs + 1);
  parallel_rows(layout.outer * layout.count, layout.inner, [&](int64_t begin, int64_t end) {
    run_simd<CopySlots<I>>(x, y, bytes, &slots, begin, end);
  });
}

Status launch_select(const OpCall& call) {
  const SlotLayout layout = layout_of_select(call);
  NPU_TRY(check_indices(layout, call.inputs + 1));
  if (call.outputs[0].numel == 0) return {};
  return with_index(call.inputs[1], [&](auto index) {
    using I = decltype(index);
    if (layout.inner != 1) return select_rows<I>(call, layout), Status();
    return with_item(call.inputs[0].dtype,
                     [&](auto item) { return select_items<decltype(item), I>(call, layout), Status(); });
  });
}

template <class T, class I>
void gather(const OpCall& call, const WalkLayout& walk) {
  const auto* x = static_cast<const T*>(call.inputs[0].data);
  const auto* index = static_cast<const I*>(call.inputs[1].data);
  auto* y = static_cast<T*>(call.outputs[0].data);
  const int last = walk.rank - 1;
  const int64_t n = walk.shape[last], along = walk.whole_strides[walk.axis];
  const int64_t step = last == walk.axis ? 0 : walk.whole_strides[last];
  parallel_rows(rows_of(walk), n, [&](int64_t begin, int64_t end) {
    walk_tiles(walk, begin, end, sizeof(T), [&](int64_t row, int64_t whole, int64_t, int64_t first, int64_t last) {
      const T* from = x + whole;
      const I* places = index + row * n;
      T* to = y + row * n;
      const int64_t place_step = along, item_step = step;
      if (place_step == 1 && item_step == 0) {
        for (int64_t i = first; i < last; ++i) to[i] = from[places[i]];
      } else {
        for (int64_t i = first; i < last; ++i) to[i] = from[places[i] * place_step + i * item_step];
      }
    });
  });
}

Status launch_gather(const OpCall& call) {
  const WalkLayout walk = layout_of_gather(call);
  NPU_TRY(check_index(call.inputs[1], walk.axis, walk.axis_size, false));
  return with_index(call.inputs[1], [&](auto index) {
    return with_item(call.inputs[0].dtype, [&](auto item) {
      return gather<decltype(item), decltype(index)>(call, walk), Status();
    });
  });
}

}  // namespace

std::vector<KernelPtr> reading_host_kernels() {
  return {make_kernel({kIndexSelect, "index_select.any.host", DeviceType::Host},
                      {select_supported, launch_select}),
          make_kernel({kGather, "gather.any.host", DeviceType::Host}, {gather_supported, launch_gather})};
}

}  // namespace npu::indexing
