#include "ops/copy/copy.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace npu {
namespace {

struct Axis {
  int64_t size, x_stride, y_stride;
};

bool is_outside(const Axis& a, const Axis& b) {
  return std::pair(a.y_stride, a.x_stride) > std::pair(b.y_stride, b.x_stride);
}

// Whether stepping once along `outer` is the same as stepping over all of `inner`.
bool continues(const Axis& outer, const Axis& inner) {
  return outer.x_stride == inner.x_stride * inner.size && outer.y_stride == inner.y_stride * inner.size;
}

}  // namespace

OpInfo copy_info() {
  return {.kind = OpKind::Copy, .name = "Copy", .min_inputs = 1, .max_inputs = 1, .num_outputs = 1};
}

Status expect_items(const TensorDesc& tensor) {
  const int bits = tensor.dtype.bits * tensor.dtype.lanes;
  if (bits % 8 == 0 && bits <= 128 && std::has_single_bit(unsigned(bits))) return {};
  return Status::not_implemented("items of " + name_of(tensor.dtype) + " have " + std::to_string(bits) +
                                 " bits, not 8, 16, 32, 64 or 128");
}

Status copy_supported(const OpCall& call) {
  const TensorDesc &x = call.inputs[0], &y = call.outputs[0];
  NPU_TRY(expect_dtype(y, x.dtype, "y"));
  NPU_TRY(expect_same_shape(x, y, "x", "y"));
  return expect_items(x);
}

Cost copy_cost(const OpCall& call) { return cost_of(call, 0); }

int StridedPair::transposed_axis() const {
  if (rank == 1 || y_strides[last()] != 1 || x_strides[last()] == 1) return -1;
  const int64_t* found = std::find(x_strides, x_strides + last(), 1);
  return found == x_strides + last() ? -1 : static_cast<int>(found - x_strides);
}

StridedPair collapse(const TensorDesc& x, const TensorDesc& y) {
  Axis axes[NPU_MAX_RANK] = {};
  int count = 0;
  for (int i = 0; i < x.rank; ++i) {
    if (x.shape[i] == 1) continue;
    const Axis axis{x.shape[i], x.strides[i], y.strides[i]};
    int place = count++;
    for (; place > 0 && is_outside(axis, axes[place - 1]); --place) axes[place] = axes[place - 1];
    axes[place] = axis;
  }
  if (count == 0) axes[count++] = {1, 1, 1};
  StridedPair pair;
  for (int i = 0; i < count; ++i) {
    const bool joins = i > 0 && continues(axes[i - 1], axes[i]);
    if (joins) axes[i].size *= axes[i - 1].size;
    const int place = joins ? pair.last() : pair.rank++;
    pair.shape[place] = axes[i].size;
    pair.x_strides[place] = axes[i].x_stride;
    pair.y_strides[place] = axes[i].y_stride;
  }
  return pair;
}

}  // namespace npu
