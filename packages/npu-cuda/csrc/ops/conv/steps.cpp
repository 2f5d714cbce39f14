#include "ops/conv/steps.h"

namespace npu::conv {
namespace {

// The stride of the spatial axes of a tensor as one; false where they are none.
bool join_pixels(const TensorDesc& tensor, const TensorDesc& y, int64_t* stride) {
  int64_t next = 0;
  bool is_first = true;
  for (int axis = y.rank - 1; axis >= 2; --axis) {
    if (y.shape[axis] == 1) continue;
    const int64_t own = pointwise::stride_along(tensor, y, axis);
    if (is_first) *stride = own;
    else if (own != next) return false;
    next = own * y.shape[axis];
    is_first = false;
  }
  return true;
}

}  // namespace

StepsCall::StepsCall(const OpCall& whole)
    : FollowingCall(whole, attrs_of<PackedAttrs>(whole).has_bias ? 3 : 2, sizeof(PackedAttrs) - sizeof(fusion::Header),
                    whole.inputs[0].dtype) {}

Status Steps::make(const OpCall& fused, int64_t columns) {
  NPU_TRY(plan_.make(fused));
  pointwise::Nest nest;
  nest.rank = 2;
  nest.operands = fused.num_inputs + fused.num_outputs;
  const TensorDesc& y = fused.outputs[0];
  for (int i = 0; i < nest.operands; ++i) {
    const TensorDesc& tensor = pointwise::operand_of(fused, i);
    Strides& strides = strides_[i];
    strides = {pointwise::stride_along(tensor, y, 0), 0, pointwise::stride_along(tensor, y, 1)};
    if (i == 0) strides.pixel = columns, strides.channel = 1;
    else if (!join_pixels(tensor, y, &strides.pixel)) {
      return Status::not_implemented("the pixels of " + text_of(tensor) + ", a tensor of a step, have no stride of their own");
    }
    nest.strides[i][0] = strides.channel;
    nest.strides[i][1] = strides.pixel;
  }
  window_ = plan_.over(nest, fused);
  return {};
}

void Steps::run(const OpCall& fused, const Part& part) const {
  void* data[pointwise::kMaxOperands];
  data[0] = part.sums;
  for (int i = 1; i < fused.num_inputs + fused.num_outputs; ++i) {
    const Strides& strides = strides_[i];
    const int64_t at = part.image * strides.image + part.pixel * strides.pixel + part.channel * strides.channel;
    data[i] = static_cast<char*>(pointwise::operand_of(fused, i).data) + at * window_.operands[i].bytes;
  }
  pointwise::run_window(window_, data, part.pixels, part.channels);
}

}  // namespace npu::conv
