#include "ops/reduce/geometry.h"

namespace npu::reduce {
namespace {

bool is_reduced(uint64_t axes, int axis) { return axes >> axis & 1; }

// The axes of a tensor that a test chooses, without its flags, so that its strides are looked at.
template <class F>
TensorDesc some_axes(const TensorDesc& tensor, F is_chosen) {
  TensorDesc some = tensor;
  some.rank = 0;
  some.numel = 1;
  some.flags = 0;
  for (int axis = 0; axis < tensor.rank; ++axis) {
    if (!is_chosen(axis)) continue;
    some.shape[some.rank] = tensor.shape[axis];
    some.strides[some.rank++] = tensor.strides[axis];
    some.numel *= tensor.shape[axis];
  }
  return some;
}

Nest nest_of_tensors(const TensorDesc* inputs, int count, const TensorDesc& output) {
  OpCall call{};
  call.inputs = inputs;
  call.num_inputs = count;
  call.outputs = &output;
  call.num_outputs = 1;
  return pointwise::nest_of(call);
}

}  // namespace

Status check_shapes(const TensorDesc& x, const TensorDesc& y, uint64_t axes) {
  const TensorDesc kept = some_axes(x, [=](int axis) { return !is_reduced(axes, axis); });
  TensorDesc ones = x;
  for (int axis = 0; axis < x.rank; ++axis) {
    if (is_reduced(axes, axis)) ones.shape[axis] = 1;
  }
  if (same_shape(y, kept)) return {};
  return expect_same_shape(y, ones, "the output", "the input without reduced axes");
}

bool Geometry::has_columns() const {
  constexpr int64_t least = 8;
  return kept.strides[kOfInput][0] == 1 && kept.shape[0] >= least && reduced.numel > 1 &&
      reduced.strides[0][0] != 1;
}

Geometry geometry_of(const TensorDesc& x, const TensorDesc& y, uint64_t axes) {
  const TensorDesc kept = some_axes(x, [=](int axis) { return !is_reduced(axes, axis); });
  const TensorDesc reduced = some_axes(x, [=](int axis) { return is_reduced(axes, axis); });
  const bool has_ones = y.rank == x.rank;
  const TensorDesc results = some_axes(y, [=](int axis) { return !has_ones || !is_reduced(axes, axis); });
  return {nest_of_tensors(&results, 1, kept), nest_of_tensors(nullptr, 0, reduced)};
}

}  // namespace npu::reduce
