// Two tensors of one shape as a loop nest: axes of size 1 left out, ordered by the strides of y, neighbours that are
// one axis in memory joined. Axes that are contiguous in both become one axis.
#pragma once

#include "core/call.h"

namespace npu {

struct StridedPair {
  int rank = 0;  // at least 1
  int64_t shape[NPU_MAX_RANK] = {};  // outermost first
  int64_t x_strides[NPU_MAX_RANK] = {};
  int64_t y_strides[NPU_MAX_RANK] = {};

  int last() const { return rank - 1; }
  bool is_contiguous() const { return rank == 1 && x_strides[0] == 1 && y_strides[0] == 1; }
  // The axis along which x is contiguous while y is contiguous along the last one; -1 if this is not a transposition.
  int transposed_axis() const;
};

// Of tensors that have elements.
StridedPair collapse(const TensorDesc& x, const TensorDesc& y);

}  // namespace npu
