// Index tensors on the host: checked as a whole, then read.
#pragma once

#include <algorithm>

#include "ops/index/layouts.h"
#include "ops/threads.h"

namespace npu::indexing {

inline constexpr int64_t kLeastItems = 1 << 15;  // of a thread

// Invalid, naming the first index that is not among `size` places of an axis; `wraps`: -size is the first
// place.
Status check_index(const TensorDesc& index, int64_t axis, int64_t size, bool wraps);
Status check_indices(const SlotLayout& layout, const TensorDesc* indices);

// Checked indices as slots.
template <class I>
struct Slots {
  const SlotLayout& layout;
  const I* indices[kMaxIndices] = {};

  Slots(const SlotLayout& slots, const TensorDesc* tensors) : layout(slots) {
    for (int d = 0; d < slots.depth; ++d) indices[d] = static_cast<const I*>(tensors[d].data);
  }
  int64_t operator[](int64_t i) const {
    int64_t slot = 0;
    for (int d = 0; d < layout.depth; ++d) {
      const int64_t given = indices[d][i];
      slot += (given < 0 ? given + layout.sizes[d] : given) * layout.strides[d];
    }
    return slot;
  }
};

// Calls f with a number of the dtype of an index.
template <class F>
Status with_index(const TensorDesc& index, F f) {
  return index.dtype == kInt64 ? f(int64_t{}) : f(int32_t{});
}

struct Item16 {
  uint64_t low, high;
};

// Calls f with an item of the size of a dtype.
template <class F>
Status with_item(DType dtype, F f) {
  switch (item_bytes(dtype)) {
    case 1: return f(uint8_t{});
    case 2: return f(uint16_t{});
    case 4: return f(uint32_t{});
    case 8: return f(uint64_t{});
    default: return f(Item16{});
  }
}

// Calls f(begin, end) for ranges that cover `rows` rows, of `row` items each.
template <class F>
void parallel_rows(int64_t rows, int64_t row, F f) {
  const int64_t length = std::max<int64_t>(1, row);
  parallel_for(rows * length, std::max(kLeastItems, length), [&](int64_t begin, int64_t end) {
    f((begin + length - 1) / length, (end + length - 1) / length);
  });
}

// Calls f(whole, source, n) for each row of a walk, with offsets without the axis; `begin` to `end` are rows.
template <class F>
void walk_rows(const WalkLayout& walk, int64_t begin, int64_t end, F f) {
  const int last = walk.rank - 1;
  for (int64_t row = begin; row < end; ++row) {
    int64_t rest = row, whole = 0, source = 0;
    for (int i = last - 1; i >= 0; --i) {
      const int64_t next = rest / walk.shape[i], at = rest - next * walk.shape[i];
      whole += i == walk.axis ? 0 : at * walk.whole_strides[i];
      source += at * walk.source_strides[i];
      rest = next;
    }
    f(row, whole, source);
  }
}

// Calls f(whole, source, first, last) likewise for parts of rows. Where the axis is an outer one, rows name places far
// apart: tiles of columns of which all places stay in the cache are walked one after the other.
template <class F>
void walk_tiles(const WalkLayout& walk, int64_t begin, int64_t end, int64_t item, F f) {
  constexpr int64_t cache_bytes = 1 << 20, line_bytes = 64;
  const int64_t n = walk.shape[walk.rank - 1], lines = cache_bytes / line_bytes / std::max<int64_t>(1, walk.axis_size);
  const bool is_far = walk.axis != walk.rank - 1 && walk.axis_size * n * item > cache_bytes;
  const int64_t tile = is_far ? std::max<int64_t>(1, lines) * line_bytes / item : std::max<int64_t>(1, n);
  for (int64_t first = 0; first < n; first += tile) {
    walk_rows(walk, begin, end, [&](int64_t row, int64_t whole, int64_t source) {
      f(row, whole, source, first, std::min(n, first + tile));
    });
  }
}

inline int64_t rows_of(const WalkLayout& walk) {
  return walk.numel == 0 ? 0 : walk.numel / walk.shape[walk.rank - 1];
}

}  // namespace npu::indexing
