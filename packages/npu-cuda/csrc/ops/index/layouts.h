// The geometry of calls: how elements, slots and indices relate, as numbers that kernels compute with.
#pragma once

#include "ops/index/index.h"

namespace npu::indexing {

inline constexpr DType kInt64{0, 64, 1}, kInt32{0, 32, 1};

// Of [outer, slots, inner] contiguous items, where each tuple of `count` indices names a slot.
struct SlotLayout {
  int64_t outer = 1, slots = 1, inner = 1, count = 1;
  int depth = 1;  // indices of a tuple
  int64_t sizes[kMaxIndices] = {}, strides[kMaxIndices] = {};
  int64_t first_axis = 0;
  bool wraps = false;
  int64_t skipped = -1;  // a slot that is not written
};

// `whole` is the tensor with the slots.
SlotLayout slot_layout(const TensorDesc& whole, const TensorDesc* indices, int depth, int64_t axis,
                       bool wraps);
SlotLayout layout_of_select(const OpCall& call);
SlotLayout layout_of_put(const OpCall& call);
SlotLayout layout_of_embedding_bwd(const OpCall& call);

// Of an index tensor that is walked element by element: at coordinate c, place c of `whole` with c[axis]
// replaced.
struct WalkLayout {
  int rank = 1;  // at least 1
  int axis = 0;
  int64_t axis_size = 1, numel = 0, whole_numel = 0;
  int64_t shape[NPU_MAX_RANK] = {};
  int64_t whole_strides[NPU_MAX_RANK] = {}, source_strides[NPU_MAX_RANK] = {};  // in elements
};

WalkLayout layout_of_gather(const OpCall& call);
WalkLayout layout_of_scatter(const OpCall& call);

// Of the sorted axis.
struct SortLayout {
  int64_t outer = 1, size = 1, inner = 1, kept = 1;

  int64_t rows() const { return outer * inner; }
};

SortLayout layout_of_sort(const OpCall& call);

// The output of AxisMap: the strides of x that its axes step over.
struct MapLayout {
  int rank = 0;
  Outside mode = Outside::Nothing;
  int64_t shape[NPU_MAX_RANK] = {}, sizes[NPU_MAX_RANK] = {}, x_strides[NPU_MAX_RANK] = {};
  int64_t start[NPU_MAX_RANK] = {}, step[NPU_MAX_RANK] = {};
};

MapLayout layout_of_map(const OpCall& call);

inline int64_t positive_axis(int64_t axis, int rank) { return axis < 0 ? axis + rank : axis; }
int64_t product(const int64_t* sizes, int64_t begin, int64_t end);

// `tensor` at start, start + step, ... of an axis.
TensorDesc slice_of(const TensorDesc& tensor, int64_t axis, int64_t start, int64_t step, int64_t size);
// With an axis of size 1 before `axis`.
TensorDesc unsqueezed(const TensorDesc& tensor, int64_t axis);

}  // namespace npu::indexing
