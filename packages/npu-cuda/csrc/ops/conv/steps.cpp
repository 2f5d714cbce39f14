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

// Whether elements of one shape are in the same places of their tensors.
bool are_places_equal(const TensorDesc& tensor, const TensorDesc& y) {
  for (int axis = 0; axis < y.rank; ++axis) {
    if (y.shape[axis] > 1 && pointwise::stride_along(tensor, y, axis) != y.strides[axis]) return false;
  }
  return true;
}

// What a step adds to the sums in a tensor of the chain: an input of it; 0 where it does something else.
size_t addend_of(const fusion::ChainStep& step, uint32_t sums) {
  using pointwise::op::EltwiseAdd;
  if (step.op->row.name != EltwiseAdd::row.name || reinterpret_cast<const EltwiseAdd::Attrs*>(step.attrs)->alpha != 1) return 0;
  if (step.inputs[0] == sums) return step.inputs[1];
  return step.inputs[1] == sums ? step.inputs[0] : 0;
}

bool set_activation(const fusion::ChainStep& step, Finish* finish) {
  namespace op = pointwise::op;
  using Activation = Finish::Activation;
  const std::string_view name = step.op->row.name;
  if (name == op::EltwiseRelu::row.name) finish->activation = Activation::kRelu;
  else if (name == op::Hardswish::row.name) finish->activation = Activation::kHardswish;
  else if (name == op::Clamp::row.name) finish->activation = Activation::kClamp;
  if (finish->activation == Activation::kClamp) finish->bounds = *reinterpret_cast<const pointwise::Bounds*>(step.attrs);
  return finish->activation != Activation::kNone;
}

// Of a chain of at most an addition and an activation of float32, whose result is its only one.
std::optional<Finish> finish_of(const fusion::Chain& chain, const OpCall& fused, size_t* addend) {
  const TensorDesc& y = fused.outputs[0];
  const auto is_float = [](const TensorDesc& tensor) { return tensor.dtype == kFloat32; };
  if (fused.num_outputs != 1 || !is_float(y) || chain.steps.size() > 2) return {};
  Finish finish;
  uint32_t sums = 0;
  for (const fusion::ChainStep& step : chain.steps) {
    if (step.op->type != pointwise::kFloat32 || !is_float(chain.tensors[step.outputs[0]].desc)) return {};
    const size_t added = finish.has_addend ? 0 : addend_of(step, sums);
    if (added > 0 && finish.activation == Finish::Activation::kNone) {
      if (added >= chain.inputs || !is_float(fused.inputs[added]) || !are_places_equal(fused.inputs[added], y)) return {};
      finish.has_addend = true;
      *addend = added;
    } else if (finish.activation != Finish::Activation::kNone || step.inputs[0] != sums || !set_activation(step, &finish)) {
      return {};
    }
    sums = step.outputs[0];
  }
  return sums == chain.inputs ? std::optional(finish) : std::nullopt;
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
  finish_ = finish_of(plan_.chain(), fused, &addend_);
  return {};
}

std::optional<Finish> Steps::finish(const OpCall& fused) const {
  std::optional<Finish> finish = finish_;
  if (finish && finish->has_addend) {
    finish->to_addend = reinterpret_cast<uintptr_t>(fused.inputs[addend_].data) - reinterpret_cast<uintptr_t>(fused.outputs[0].data);
  }
  return finish;
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
    finish_ = steps->finish(fused_->call);
  }
  are_direct_ = (!steps || finish_) && geometry.y.dtype == kFloat32 && geometry.y.channel_stride == 1;
}

void Results::write(const Bands& bands, const BandPlace& place, int64_t first, int64_t pixels, int64_t channel,
                    int64_t channels, float* sums) const {
  const Image& y = geometry_.y;
  if (steps_) {
    const int64_t pixel = (place.depth * bands.height() + place.first_row) * bands.width() + first;
    return steps_->run(fused_->call, {place.image, pixel, pixels, channel, channels, sums});
  }
  const pointwise::WriteRow write = pointwise::writer(pointwise::element_of(y.dtype), pointwise::kFloat32);
  for (int64_t pixel = 0; pixel < pixels; ++pixel) {
    const int64_t row = (first + pixel) / bands.width(), column = (first + pixel) % bands.width();
    const int64_t at = offset_in(y, bands, place, row, column) + channel * y.channel_stride;
    write(sums + pixel * y.channels, static_cast<char*>(y_.data) + at * item_bytes(y.dtype), y.channel_stride, channels);
  }
}

}  // namespace npu::conv
