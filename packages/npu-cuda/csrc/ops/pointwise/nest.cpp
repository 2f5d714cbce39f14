#include "ops/pointwise/nest.h"

#include <algorithm>

namespace npu::pointwise {
namespace {

bool broadcasts(const TensorDesc& from, const TensorDesc& to) {
  if (from.rank > to.rank) return false;
  const int64_t* last = to.shape + (to.rank - from.rank);
  for (int axis = 0; axis < from.rank; ++axis) {
    if (from.shape[axis] != 1 && from.shape[axis] != last[axis]) return false;
  }
  return true;
}

bool is_one_row(const OpCall& call) {
  const TensorDesc& first = call.outputs[0];
  for (int i = 0; i < call.num_inputs + call.num_outputs; ++i) {
    const TensorDesc& operand = operand_of(call, i);
    if (!is_contiguous(operand) || !same_shape(operand, first)) return false;
  }
  return true;
}

// The axes of the output with more than one element, ordered by stride.
int order_axes(const TensorDesc& output, int* order) {
  int count = 0;
  for (int axis = output.rank - 1; axis >= 0; --axis) {
    if (output.shape[axis] == 1) continue;
    int place = count++;
    const auto is_after = [&](int other) { return output.strides[other] > output.strides[axis]; };
    for (; place > 0 && is_after(order[place - 1]); --place) order[place] = order[place - 1];
    order[place] = axis;
  }
  return count;
}

}  // namespace

int64_t stride_along(const TensorDesc& tensor, const TensorDesc& output, int axis) {
  const int own = axis - (output.rank - tensor.rank);
  return own < 0 || tensor.shape[own] == 1 ? 0 : tensor.strides[own];
}

void add_axis(Nest* nest, int64_t size, const int64_t* strides) {
  const int last = nest->rank - 1;
  bool joins = last >= 0;
  for (int i = 0; joins && i < nest->operands; ++i) joins = strides[i] == nest->strides[i][last] * nest->shape[last];
  if (joins) {
    nest->shape[last] *= size;
    return;
  }
  nest->shape[nest->rank] = size;
  for (int i = 0; i < nest->operands; ++i) nest->strides[i][nest->rank] = strides[i];
  ++nest->rank;
}

bool Nest::is_constant(int operand) const {
  return std::all_of(strides[operand], strides[operand] + rank, [](int64_t stride) { return stride == 0; });
}

bool Nest::is_flat() const {
  if (rank != 1) return false;
  for (int i = 0; i < operands; ++i) {
    if (strides[i][0] > 1) return false;
  }
  return true;
}

Status check_shapes(const OpCall& call) {
  const TensorDesc& y = call.outputs[0];
  for (int i = 1; i < call.num_outputs; ++i) NPU_TRY(expect_same_shape(call.outputs[i], y, "an output", "the first"));
  for (int i = 0; i < call.num_inputs; ++i) {
    if (!same_shape(call.inputs[i], y) && !broadcasts(call.inputs[i], y)) {
      return other_shape(call.inputs[i], y, "an input", "the output");
    }
  }
  return {};
}

Nest nest_of(const OpCall& call) {
  const TensorDesc& y = call.outputs[0];
  Nest nest;
  nest.operands = call.num_inputs + call.num_outputs;
  nest.numel = y.numel;
  int order[NPU_MAX_RANK];
  int64_t ones[kMaxOperands];
  std::fill(std::begin(ones), std::end(ones), 1);
  if (is_one_row(call)) {
    add_axis(&nest, y.numel, ones);
    return nest;
  }
  const int axes = order_axes(y, order);
  for (int k = 0; k < axes; ++k) {
    int64_t strides[kMaxOperands];
    for (int i = 0; i < nest.operands; ++i) strides[i] = stride_along(operand_of(call, i), y, order[k]);
    add_axis(&nest, y.shape[order[k]], strides);
  }
  if (nest.rank == 0) add_axis(&nest, 1, ones);
  return nest;
}

Cursor::Cursor(const Nest* nest, int64_t start) : nest_(nest) {
  for (int axis = 0; axis < nest->rank; ++axis) {
    index_[axis] = start % nest->shape[axis];
    start /= nest->shape[axis];
    for (int i = 0; i < nest->operands; ++i) offsets_[i] += index_[axis] * nest->strides[i][axis];
  }
}

void Cursor::advance(int64_t count) {
  index_[0] += count;
  for (int i = 0; i < nest_->operands; ++i) offsets_[i] += count * nest_->strides[i][0];
  for (int axis = 0; axis + 1 < nest_->rank && index_[axis] == nest_->shape[axis]; ++axis) {
    index_[axis] = 0;
    ++index_[axis + 1];
    for (int i = 0; i < nest_->operands; ++i) {
      offsets_[i] += nest_->strides[i][axis + 1] - nest_->shape[axis] * nest_->strides[i][axis];
    }
  }
}

}  // namespace npu::pointwise
