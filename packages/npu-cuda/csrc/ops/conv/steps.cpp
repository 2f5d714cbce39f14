#include "ops/conv/steps.h"

#include <algorithm>

namespace npu::conv {
namespace {

constexpr int64_t kGathered = 256;  // sums of one channel that are written together

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

// The pixels of a channel are side by side, and its channels are not.
bool are_planes(const TensorDesc& y) { return y.strides[y.rank - 1] == 1 && y.strides[1] != 1; }

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
  is_by_channel_ = are_planes(y);
  for (int i = 0; i < nest.operands; ++i) {
    const TensorDesc& tensor = pointwise::operand_of(fused, i);
    Strides& strides = strides_[i];
    strides = {pointwise::stride_along(tensor, y, 0), 0, pointwise::stride_along(tensor, y, 1)};
    if (i == 0) strides.pixel = columns, strides.channel = 1;
    else if (!join_pixels(tensor, y, &strides.pixel)) {
      return Status::not_implemented("the pixels of " + text_of(tensor) + ", a tensor of a step, have no stride of their own");
    }
    nest.strides[i][0] = is_by_channel_ ? strides.pixel : strides.channel;
    nest.strides[i][1] = is_by_channel_ ? strides.channel : strides.pixel;
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
  if (is_by_channel_) pointwise::run_window(window_, data, part.channels, part.pixels);
  else pointwise::run_window(window_, data, part.pixels, part.channels);
}

std::shared_ptr<const Steps> steps_of(const OpCall& call) {
  if (attrs_of<PackedAttrs>(call).steps == 0) return nullptr;
  auto steps = std::make_shared<Steps>();
  (void)steps->make(StepsCall(call).call, call.outputs[0].shape[1]);  // the call is supported
  return steps;
}

Results::Results(const OpCall& call, const Geometry& geometry, const Steps* steps)
    : y_(call.outputs[0]), geometry_(geometry), steps_(steps) {
  if (steps) {
    fused_.emplace(call);
    in_registers_ = steps->in_registers(fused_->call);
  }
  are_direct_ = (!steps || in_registers_) && geometry.y.dtype == kFloat32 && geometry.y.channel_stride == 1;
}

void Results::write(const Bands& bands, const BandPlace& place, int64_t first, int64_t pixels, int64_t channel,
                    int64_t channels, float* sums) const {
  const Image& y = geometry_.y;
  if (steps_) {
    const int64_t pixel = (place.depth * bands.height() + place.first_row) * bands.width() + first;
    return steps_->run(fused_->call, {place.image, pixel, pixels, channel, channels, sums});
  }
  const pointwise::WriteRow write = pointwise::writer(pointwise::element_of(y.dtype), pointwise::kFloat32);
  const int64_t item = item_bytes(y.dtype);
  for (int64_t pixel = 0, count; pixel < pixels; pixel += count) {
    const int64_t row = (first + pixel) / bands.width(), column = (first + pixel) % bands.width();
    count = y.channel_stride == 1 ? 1 : std::min({pixels - pixel, bands.width() - column, kGathered});
    char* const to = static_cast<char*>(y_.data) + (offset_in(y, bands, place, row, column) + channel * y.channel_stride) * item;
    const float* const from = sums + pixel * y.channels;
    if (count == 1) write(from, to, y.channel_stride, channels);
    else write_planes(from, count, channels, write, to, bands.plane.axes[2].step * y.strides[2]);
  }
}

void Results::write_planes(const float* sums, int64_t pixels, int64_t channels, pointwise::WriteRow write, char* to,
                           int64_t stride) const {
  const Image& y = geometry_.y;
  float numbers[kGathered];
  for (int64_t channel = 0; channel < channels; ++channel) {
    for (int64_t i = 0; i < pixels; ++i) numbers[i] = sums[i * y.channels + channel];
    write(numbers, to + channel * y.channel_stride * item_bytes(y.dtype), stride, pixels);
  }
}

}  // namespace npu::conv
