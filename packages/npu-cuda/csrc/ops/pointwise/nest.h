// Nest: the loops of a pointwise op over operands that broadcast to the shape of its outputs, with any
// strides. Axes of size 1 are left out; the others are ordered by the strides of the output, innermost first,
// and neighbours that are one axis for every operand are joined.
#pragma once

#include "core/call.h"

namespace npu::pointwise {

inline constexpr int kMaxOperands = 16;

struct Nest {
  int rank = 0;  // at least 1
  int operands = 0;  // inputs, then outputs
  int64_t numel = 0;
  int64_t shape[NPU_MAX_RANK];
  int64_t strides[kMaxOperands][NPU_MAX_RANK];  // in elements; 0 where the operand is broadcast

  bool is_constant(int operand) const;  // one element stands for all
  // Every operand is one row, or constant.
  bool is_flat() const;
};

inline const TensorDesc& operand_of(const OpCall& call, int i) {
  return i < call.num_inputs ? call.inputs[i] : call.outputs[i - call.num_inputs];
}

// NotImplemented unless all outputs have one shape, and the inputs broadcast to it.
Status check_shapes(const OpCall& call);

// The stride of a tensor along an axis of one that it broadcasts to.
int64_t stride_along(const TensorDesc& tensor, const TensorDesc& output, int axis);

// Adds the next axis, from the innermost one on: a new one, or a part of the last one where all operands continue it.
void add_axis(Nest* nest, int64_t size, const int64_t* strides);

// Returns the nest of a call that has elements and passed check_shapes.
Nest nest_of(const OpCall& call);

// A place in a nest: the offset of each operand, in elements.
class Cursor {
 public:
  Cursor(const Nest* nest, int64_t start);

  int64_t offset(int operand) const { return offsets_[operand]; }
  int64_t left_in_row() const { return nest_->shape[0] - index_[0]; }
  // At most to the end of the row.
  void advance(int64_t count);

 private:
  const Nest* nest_;
  int64_t index_[NPU_MAX_RANK] = {};
  int64_t offsets_[kMaxOperands] = {};
};

}  // namespace npu::pointwise
