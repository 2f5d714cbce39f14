// RowCall: the rows of a call. The axes of its tensors are divided into those of rows and those along a row,
// each with the strides of every tensor that has places along rows; the others have one number for each row.
#pragma once

#include "ops/pointwise/elements.h"
#include "ops/pointwise/nest.h"
#include "ops/pointwise/pointwise.h"
#include "ops/rows/ops.h"

namespace npu::rows {

using pointwise::Class;
using pointwise::Element;
using pointwise::Nest;

// What a call computes, of a line without its types.
struct Shape {
  Line line;
  int inputs;       // along rows, in the order of the formula: x comes before dy
  int given, made;  // numbers of a row
  bool has_result;
};

template <class Fn>
constexpr Shape shape_of() {
  using F = typename Fn::Formula;
  return {Fn::line, F::kInputs, F::kGiven, F::kMade, F::kHasResult};
}

struct RowCall {
  Nest rows, columns;  // operands: the inputs along rows, then the result
  int inputs;
  const TensorDesc* along[8];    // the operands
  const TensorDesc* numbers[2];  // given, or made

  int64_t count() const { return rows.numel; }
  int64_t width() const { return columns.numel; }
};

// Returns the description of a call that check_rows took, and that has elements.
RowCall row_call_of(const OpCall& call, const Shape& shape, int64_t parameter);

// The sums over all rows that are the gradients of gamma and beta, of a call of GroupNormBwd.
RowCall channel_call_of(const OpCall& call, int64_t groups);

// Ok where all tensors are real floats whose class this is, `other` aside: float64 where one is, else
// float32.
Status check_floats(const OpCall& call, Class type, int other = -1);

// Ok where the op is computed in this class for such tensors; `parameter` is the axis or the number of
// groups.
Status check_rows(const OpCall& call, const Shape& shape, Class type, int64_t parameter);

template <class Attrs>
int64_t parameter_of(const Attrs& attrs) {
  if constexpr (requires { attrs.axis; }) return attrs.axis;
  else if constexpr (requires { attrs.groups; }) return attrs.groups;
  else return 0;
}

template <class Fn, Class type>
Status supported(const OpCall& call) {
  return check_rows(call, shape_of<Fn>(), type, parameter_of(attrs_of<typename Fn::Attrs>(call)));
}

}  // namespace npu::rows
