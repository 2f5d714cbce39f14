// The launches that a batch norm consists of, for a device whose `Steps` have
//   reduce<Fn>(call), reduce_around<Fn>(m, call), pointwise<Fn>(call), reduction_bytes<Fn>(call), Number.
// `m` are the results of the first of its two passes, which a device need not compute again.
// Where sums_products(x, mean), sum_products(dy, mean, call) adds dy * (x - mean), of the same strides.
#pragma once

#include <algorithm>
#include <numeric>

#include "ops/pointwise/nest.h"
#include "ops/reduce/batch_norm.h"

namespace npu::reduce {

// A call of one step, made of the tensors of another call.
class StepCall {
 public:
  StepCall(const OpCall& call, void* workspace) : call_(call) {
    call_.num_inputs = 0;
    call_.workspace = workspace;
    call_.attrs = {};
    call_.inputs = inputs_;
    call_.outputs = &output_;
    call_.num_outputs = 1;
  }
  StepCall(const StepCall&) = delete;
  StepCall& operator=(const StepCall&) = delete;

  StepCall& input(const TensorDesc& tensor) {
    inputs_[call_.num_inputs++] = tensor;
    return *this;
  }
  // A number for each channel, next to tensors of this rank.
  StepCall& channels(const TensorDesc& vector, int rank) {
    TensorDesc& wide = inputs_[call_.num_inputs++] = vector;
    wide.rank = rank - 1;
    std::fill(wide.shape, wide.shape + wide.rank, 1);
    std::fill(wide.strides, wide.strides + wide.rank, 1);
    wide.shape[0] = vector.shape[0];
    return *this;
  }
  template <class Attrs>
  StepCall& attrs(const Attrs& attrs) {
    call_.attrs.data = &attrs;
    call_.attrs.bytes = sizeof(Attrs);
    return *this;
  }
  const OpCall& to(const TensorDesc& output) {
    output_ = output;
    return call_;
  }

 private:
  OpCall call_;
  TensorDesc inputs_[pointwise::kMaxOperands];
  TensorDesc output_;
};

// All axes but that of the channels, as attributes of reductions.
inline int64_t axes_of_channel(const TensorDesc& x) { return (int64_t{1} << x.rank) - 1 - 2; }

template <class Steps>
Status launch_batch_norm_fwd(const OpCall& call) {
  const TensorDesc &x = call.inputs[0], &y = call.outputs[0], &mean = call.outputs[1];
  const TensorDesc& rstd = call.outputs[2];
  const auto attrs = attrs_of<BatchNorm>(call);
  const auto next = [&] { return StepCall(call, call.workspace); };
  if (attrs.has_running()) {
    const TensorDesc& given = call.inputs[call.num_inputs - 2];
    NPU_TRY(Steps::template pointwise<pointwise::op::Cast>(next().input(given).to(mean)));
    NPU_TRY(Steps::template pointwise<step::InverseDeviation>(
        next().input(call.inputs[call.num_inputs - 1]).attrs(attrs).to(rstd)));
  } else {
    const Axes axes{axes_of_channel(x)};
    const CorrectionAxes biased{axes, 0};
    const TensorDesc& variance = call.outputs[call.num_outputs - 1];
    NPU_TRY(Steps::template reduce<op::Mean>(next().input(x).attrs(axes).to(mean)));
    NPU_TRY(Steps::template reduce_around<op::Var>(mean, next().input(x).attrs(biased).to(variance)));
    NPU_TRY(Steps::template pointwise<step::InverseDeviation>(next().input(variance).attrs(attrs).to(rstd)));
  }
  StepCall last(call, call.workspace);
  last.input(x).channels(mean, x.rank).channels(rstd, x.rank);
  const bool is_affine = call.num_inputs - (attrs.has_running() ? 2 : 0) == 3;
  if (!is_affine) return Steps::template pointwise<step::Normalize>(last.to(y));
  last.channels(call.inputs[1], x.rank).channels(call.inputs[2], x.rank);
  if (attrs.has_relu()) return Steps::template pointwise<step::NormalizeRelu>(last.to(y));
  return Steps::template pointwise<step::NormalizeAffine>(last.to(y));
}

// What the steps of a gradient keep in the workspace: dy times the normalized x, and rstd of a running
// variance.
template <class Number>
struct Kept {
  TensorDesc projection, rstd;
  void* rest;

  static int64_t aligned(int64_t numbers) { return (numbers * int64_t{sizeof(Number)} + 255) / 256 * 256; }
  static uint64_t bytes(const TensorDesc& x, bool has_projection) {
    return static_cast<uint64_t>((has_projection ? aligned(x.numel) : 0) + aligned(x.shape[1]));
  }

  Kept(const OpCall& call, bool has_projection) : projection(call.inputs[1]), rstd(call.inputs[3]) {
    const TensorDesc& x = call.inputs[1];
    auto* start = static_cast<char*>(call.workspace);
    projection.data = start;
    projection.dtype = rstd.dtype;
    projection.flags = 0;
    projection.alignment = rstd.alignment = 256;  // as workspaces are
    // In the order of x, which decides what is near in memory.
    int axes[NPU_MAX_RANK];
    std::iota(axes, axes + projection.rank, 0);
    std::stable_sort(axes, axes + projection.rank, [&](int a, int b) { return x.strides[a] > x.strides[b]; });
    for (int64_t i = projection.rank - 1, step = 1; i >= 0; step *= projection.shape[axes[i--]]) {
      projection.strides[axes[i]] = step;
    }
    rest = start + bytes(x, has_projection);
    rstd.data = static_cast<char*>(rest) - aligned(x.shape[1]);
  }
};

// The gradient of the norm itself: that of a relu behind it is where the result will be.
inline const TensorDesc& gradient_of_norm(const OpCall& call) {
  return attrs_of<BatchNorm>(call).has_relu() ? call.outputs[0] : call.inputs[0];
}

// Products of tensors of other strides are kept, and then added.
template <class Steps>
bool keeps_products(const OpCall& call) {
  const TensorDesc &dy = gradient_of_norm(call), &x = call.inputs[1];
  return !same_numbers(dy.strides, x.strides, x.rank) || !Steps::sums_products(x, call.inputs[2]);
}

// As aligned as both.
inline TensorDesc x_beside(const TensorDesc& dy, TensorDesc x) {
  x.alignment = std::min(x.alignment, dy.alignment);
  return x;
}

template <class Steps>
Status launch_batch_norm_bwd(const OpCall& call) {
  const TensorDesc &dy = gradient_of_norm(call), &x = call.inputs[1], &mean = call.inputs[2];
  const TensorDesc &dx = call.outputs[0], &dgamma = call.outputs[1], &dbeta = call.outputs[2];
  const auto attrs = attrs_of<BatchNorm>(call);
  const bool has_projection = keeps_products<Steps>(call);
  const Kept<typename Steps::Number> kept(call, has_projection);
  const auto next = [&] { return StepCall(call, kept.rest); };
  int num_norm_inputs = call.num_inputs;
  if (attrs.has_relu()) {
    const TensorDesc& y = call.inputs[--num_norm_inputs];
    NPU_TRY(Steps::template pointwise<pointwise::op::ReluBwd>(next().input(call.inputs[0]).input(y).to(dy)));
  }
  TensorDesc rstd = call.inputs[3];
  if (attrs.has_running()) {
    NPU_TRY(Steps::template pointwise<step::InverseDeviation>(next().input(rstd).attrs(attrs).to(kept.rstd)));
    rstd = kept.rstd;
  }
  const Axes axes{axes_of_channel(x)};
  if (has_projection) {
    NPU_TRY(Steps::template pointwise<step::Projection>(
        next().input(dy).input(x).channels(mean, x.rank).channels(rstd, x.rank).to(kept.projection)));
    NPU_TRY(Steps::template reduce<op::Sum>(next().input(kept.projection).attrs(axes).to(dgamma)));
  } else {
    NPU_TRY(Steps::sum_products(dy, mean, next().input(x_beside(dy, x)).attrs(axes).to(dgamma)));
    NPU_TRY(Steps::template pointwise<step::Scale>(next().input(dgamma).input(rstd).to(dgamma)));
  }
  NPU_TRY(Steps::template reduce<op::Sum>(next().input(dy).attrs(axes).to(dbeta)));
  const bool is_affine = num_norm_inputs == 5;
  StepCall last(call, kept.rest);
  if (attrs.has_running()) {
    last.input(dy).channels(rstd, x.rank);
    if (!is_affine) return Steps::template pointwise<step::Scale>(last.to(dx));
    return Steps::template pointwise<step::ScaleAffine>(last.channels(call.inputs[4], x.rank).to(dx));
  }
  const step::Count count{double(x.shape[1]) / double(x.numel)};
  last.input(dy).input(x).channels(mean, x.rank).channels(rstd, x.rank);
  last.channels(dgamma, x.rank).channels(dbeta, x.rank);
  last.attrs(count);
  if (!is_affine) return Steps::template pointwise<step::Gradient>(last.to(dx));
  return Steps::template pointwise<step::GradientAffine>(last.channels(call.inputs[4], x.rank).to(dx));
}

template <class Steps>
uint64_t fwd_bytes(const OpCall& call) {
  const TensorDesc& x = call.inputs[0];
  const CorrectionAxes biased{{axes_of_channel(x)}, 0};
  StepCall step(call, nullptr);
  return Steps::template reduction_bytes<op::Var>(step.input(x).attrs(biased).to(call.outputs[1]));
}

template <class Steps>
uint64_t bwd_bytes(const OpCall& call) {
  const TensorDesc& x = call.inputs[1];
  const Axes axes{axes_of_channel(x)};
  const bool has_projection = keeps_products<Steps>(call);
  const Kept<typename Steps::Number> kept(call, has_projection);
  const auto bytes_for = [&](const TensorDesc& tensor) {
    StepCall step(call, nullptr);
    return Steps::template reduction_bytes<op::Sum>(step.input(tensor).attrs(axes).to(call.outputs[1]));
  };
  const TensorDesc& dy = gradient_of_norm(call);
  const uint64_t reductions = std::max(bytes_for(dy), bytes_for(has_projection ? kept.projection : x_beside(dy, x)));
  return Kept<typename Steps::Number>::bytes(x, has_projection) + reductions;
}

}  // namespace npu::reduce
