#include "ops/index/layouts.h"

#include <algorithm>

namespace npu::indexing {
namespace {

WalkLayout walk_of(const TensorDesc& index, const TensorDesc& whole, const TensorDesc& source, int64_t axis) {
  WalkLayout walk;
  walk.numel = index.numel;
  walk.whole_numel = whole.numel;
  walk.shape[0] = 1;
  if (index.rank == 0) return walk;
  walk.rank = index.rank;
  walk.axis = static_cast<int>(positive_axis(axis, index.rank));
  walk.axis_size = whole.shape[walk.axis];
  for (int i = 0; i < index.rank; ++i) {
    walk.shape[i] = index.shape[i];
    walk.whole_strides[i] = whole.strides[i];
    walk.source_strides[i] = source.rank == 0 ? 0 : source.strides[i];
  }
  return walk;
}

}  // namespace

int64_t product(const int64_t* sizes, int64_t begin, int64_t end) {
  int64_t result = 1;
  for (int64_t i = begin; i < end; ++i) result *= sizes[i];
  return result;
}

SlotLayout slot_layout(const TensorDesc& whole, const TensorDesc* indices, int depth, int64_t axis,
                       bool wraps) {
  SlotLayout layout;
  layout.first_axis = positive_axis(axis, whole.rank);
  layout.depth = depth;
  layout.wraps = wraps;
  const int64_t end = layout.first_axis + depth;
  layout.outer = product(whole.shape, 0, layout.first_axis);
  layout.slots = product(whole.shape, layout.first_axis, end);
  layout.inner = product(whole.shape, end, whole.rank);
  layout.count = indices[0].numel;
  for (int i = 0; i < depth; ++i) {
    layout.sizes[i] = whole.shape[layout.first_axis + i];
    layout.strides[i] = product(whole.shape, layout.first_axis + i + 1, end);
  }
  return layout;
}

SlotLayout layout_of_select(const OpCall& call) {
  const SelectAttrs attrs = attrs_of<SelectAttrs>(call);
  return slot_layout(call.inputs[0], call.inputs + 1, call.num_inputs - 1, attrs.axis, attrs.wrap);
}

SlotLayout layout_of_put(const OpCall& call) {
  const PutAttrs attrs = attrs_of<PutAttrs>(call);
  return slot_layout(call.outputs[0], call.inputs + 2, call.num_inputs - 2, attrs.axis, attrs.wrap);
}

SlotLayout layout_of_embedding_bwd(const OpCall& call) {
  SlotLayout layout = slot_layout(call.outputs[0], call.inputs + 1, 1, 0, false);
  layout.skipped = attrs_of<EmbeddingBwdAttrs>(call).padding_index;
  return layout;
}

WalkLayout layout_of_gather(const OpCall& call) {
  return walk_of(call.inputs[1], call.inputs[0], call.outputs[0], attrs_of<AxisAttrs>(call).axis);
}

WalkLayout layout_of_scatter(const OpCall& call) {
  return walk_of(call.inputs[1], call.outputs[0], call.inputs[2], attrs_of<ScatterAttrs>(call).axis);
}

SortLayout layout_of_sort(const OpCall& call) {
  const TensorDesc& x = call.inputs[0];
  if (x.rank == 0) return {};
  const int64_t axis = positive_axis(attrs_of<SortAttrs>(call).axis, x.rank);
  return {product(x.shape, 0, axis), x.shape[axis], product(x.shape, axis + 1, x.rank),
          call.outputs[0].shape[axis]};
}

MapLayout layout_of_map(const OpCall& call) {
  const AxisMapAttrs attrs = attrs_of<AxisMapAttrs>(call);
  const TensorDesc &x = call.inputs[0], &y = call.outputs[0];
  MapLayout map;
  map.rank = y.rank;
  map.mode = static_cast<Outside>(attrs.mode);
  const int missing = y.rank - x.rank;
  for (int i = 0; i < y.rank; ++i) {
    map.shape[i] = y.shape[i];
    map.sizes[i] = i < missing ? 1 : x.shape[i - missing];
    map.x_strides[i] = product(x.shape, std::max(0, i + 1 - missing), x.rank);
    map.start[i] = attrs.start[i];
    map.step[i] = attrs.step[i];
  }
  return map;
}

TensorDesc slice_of(const TensorDesc& tensor, int64_t axis, int64_t start, int64_t step, int64_t size) {
  TensorDesc view = tensor;
  if (tensor.shape[axis] == 0 || size == 0) view.numel = 0;
  else view.numel = tensor.numel / tensor.shape[axis] * size;
  const int64_t skipped = start * tensor.strides[axis] * item_bytes(tensor.dtype);
  if (tensor.data != nullptr) view.data = static_cast<char*>(tensor.data) + skipped;
  while (skipped % view.alignment != 0) view.alignment /= 2;
  view.shape[axis] = size;
  view.strides[axis] *= step;
  view.flags &= ~uint32_t{NPU_TENSOR_CONTIGUOUS};
  return view;
}

TensorDesc unsqueezed(const TensorDesc& tensor, int64_t axis) {
  TensorDesc view = tensor;
  std::copy_backward(tensor.shape + axis, tensor.shape + tensor.rank, view.shape + tensor.rank + 1);
  std::copy_backward(tensor.strides + axis, tensor.strides + tensor.rank, view.strides + tensor.rank + 1);
  view.shape[axis] = view.strides[axis] = 1;
  ++view.rank;
  return view;
}

}  // namespace npu::indexing
