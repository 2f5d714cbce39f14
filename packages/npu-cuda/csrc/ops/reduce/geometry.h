// The loops of a reduction: over the axes that are kept, each place of which is one result, and over the
// reduced axes. Both are ordered by the strides of the input, innermost first, and neighbours are joined.
#pragma once

#include "ops/pointwise/nest.h"

namespace npu::reduce {

using pointwise::Cursor;
using pointwise::Nest;

inline constexpr int kOfOutput = 0, kOfInput = 1;  // operands of `kept`; `reduced` has the input alone

struct Geometry {
  Nest kept;
  Nest reduced;

  // The elements of one result are far apart, those of neighbouring results are not.
  bool has_columns() const;
};

// NotImplemented unless the output has the shape of the input without the reduced axes, or with size 1 for
// each.
Status check_shapes(const TensorDesc& x, const TensorDesc& y, uint64_t axes);

Geometry geometry_of(const TensorDesc& x, const TensorDesc& y, uint64_t axes);

}  // namespace npu::reduce
