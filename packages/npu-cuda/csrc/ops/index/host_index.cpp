#include "ops/index/host_index.h"

#include "ops/host_simd.h"

namespace npu::indexing {
namespace {

// Whether all of low + 0, low + 1, ... low + count - 1 includes n numbers.
template <class I>
struct AreInside {
  [[gnu::always_inline]] static inline void run(const I* __restrict index, int64_t n, int64_t low,
                                                uint64_t count, bool* inside) {
    uint64_t outside = 0;
#pragma GCC ivdep
    for (int64_t i = 0; i < n; ++i) {
      outside |= uint64_t{uint64_t(int64_t{index[i]}) - uint64_t(low) >= count};
    }
    *inside = outside == 0;
  }
};

template <class I>
Status check(const I* index, int64_t n, int64_t axis, int64_t size, bool wraps) {
  const int64_t low = wraps ? -size : 0;
  bool inside = false;
  run_simd<AreInside<I>>(index, n, low, uint64_t(size - low), &inside);
  if (inside) return {};
  const I* found = std::find_if(index, index + n, [&](I value) { return value < low || value >= size; });
  return Status::invalid("index " + std::to_string(*found) + ", at place " + std::to_string(found - index) +
                         " of the index tensor, is not inside axis " + std::to_string(axis) + " of size " +
                         std::to_string(size));
}

}  // namespace

Status check_index(const TensorDesc& index, int64_t axis, int64_t size, bool wraps) {
  return with_index(index, [&](auto number) {
    return check(static_cast<const decltype(number)*>(index.data), index.numel, axis, size, wraps);
  });
}

Status check_indices(const SlotLayout& layout, const TensorDesc* indices) {
  for (int d = 0; d < layout.depth; ++d) {
    NPU_TRY(check_index(indices[d], layout.first_axis + d, layout.sizes[d], layout.wraps));
  }
  return {};
}

}  // namespace npu::indexing
