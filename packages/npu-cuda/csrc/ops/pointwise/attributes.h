// The attributes of pointwise ops. The initializers are the defaults. `fields` names them for Python, in the
// order in which they are packed; `resolve`, where there is one, replaces values that stand for others once
// the tensors are known.
#pragma once

#include <limits>
#include <vector>

#include "core/op_info.h"

namespace npu::pointwise {

struct None {
  static std::vector<AttrField> fields() { return {}; }
};

struct Alpha {
  float alpha = 1;
  static std::vector<AttrField> fields() { return {field("alpha", &Alpha::alpha)}; }
};

// The number in the place of a second tensor.
struct Other {
  double other = 0;
  static std::vector<AttrField> fields() { return {field("other", &Other::other)}; }
};

struct OtherAlpha {
  double other = 0, alpha = 1;
  static std::vector<AttrField> fields() {
    return {field("other", &OtherAlpha::other), field("alpha", &OtherAlpha::alpha)};
  }
};

struct Scaling {
  double value = 1;
  static std::vector<AttrField> fields() { return {field("value", &Scaling::value)}; }
};

struct Content {
  double value = 0;
  static std::vector<AttrField> fields() { return {field("value", &Content::value)}; }
};

struct Weight {
  double weight = 0.5;
  static std::vector<AttrField> fields() { return {field("weight", &Weight::weight)}; }
};

struct Bounds {
  double low = -std::numeric_limits<double>::infinity(), high = std::numeric_limits<double>::infinity();
  static std::vector<AttrField> fields() {
    return {field("low", &Bounds::low), field("high", &Bounds::high)};
  }
};

struct Slope {
  double slope = 0.01;
  static std::vector<AttrField> fields() { return {field("slope", &Slope::slope)}; }
};

struct EluAttrs {
  double alpha = 1, scale = 1, input_scale = 1;
  int64_t is_result = 0;  // of the gradient: it is given the result instead of the input
  static std::vector<AttrField> fields() {
    return {field("alpha", &EluAttrs::alpha), field("scale", &EluAttrs::scale), field("input_scale", &EluAttrs::input_scale),
            field("is_result", &EluAttrs::is_result)};
  }
};

struct SoftplusAttrs {
  double beta = 1, threshold = 20;
  static std::vector<AttrField> fields() {
    return {field("beta", &SoftplusAttrs::beta), field("threshold", &SoftplusAttrs::threshold)};
  }
};

// The axis that a bias lies along: the last one.
struct BiasAxis {
  int64_t axis = -1;
  static std::vector<AttrField> fields() { return {field("axis", &BiasAxis::axis)}; }
  Status check(const OpCall& call) const {
    if (axis == -1 || axis == call.outputs[0].rank - 1) return {};
    return Status::not_implemented("axis is " + std::to_string(axis) + ", not the last one");
  }
};

struct MseScale {
  float scale = 0;  // 0 stands for 2 / numel, the gradient of the mean
  double factor = 0;  // no field: the scale in full precision
  static std::vector<AttrField> fields() { return {field("scale", &MseScale::scale)}; }
  void resolve(const OpCall& call) {
    factor = scale == 0 ? 2.0 / double(call.outputs[0].numel) : double(scale);
  }
};

// Of stochastic gradient descent, as torch.optim.SGD has them.
struct Sgd {
  float lr = 1e-3f, momentum = 0, weight_decay = 0, dampening = 0;
  uint32_t flags = 0;  // 1: Nesterov; 2: the first step, which starts the momentum; 4: the objective grows
  static std::vector<AttrField> fields() {
    return {field("lr", &Sgd::lr), field("momentum", &Sgd::momentum), field("weight_decay", &Sgd::weight_decay),
            field("dampening", &Sgd::dampening), field("flags", &Sgd::flags)};
  }
};

// Without a tensor for the momentum there is none.
struct PlainSgd : Sgd {
  Status check(const OpCall&) const {
    return momentum == 0 ? Status() : Status::not_implemented("momentum needs its tensor: use SgdMomentumStep");
  }
};

struct Adam {
  double lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0;
  uint32_t flags = 0;  // 1: the decay of weights is apart from the gradient (AdamW); 2: the objective grows
  static std::vector<AttrField> fields() {
    return {field("lr", &Adam::lr),   field("beta1", &Adam::beta1),
            field("beta2", &Adam::beta2), field("eps", &Adam::eps),
            field("weight_decay", &Adam::weight_decay), field("flags", &Adam::flags)};
  }
};

// As torch.nn.utils.clip_grad_norm_ has them.
struct ClipAttrs {
  double max_norm = 1, eps = 1e-6;
  static std::vector<AttrField> fields() {
    return {field("max_norm", &ClipAttrs::max_norm), field("eps", &ClipAttrs::eps)};
  }
};

// As torch.amp.GradScaler has them.
struct LossScale {
  double growth_factor = 2, backoff_factor = 0.5;
  int64_t growth_interval = 2000;
  static std::vector<AttrField> fields() {
    return {field("growth_factor", &LossScale::growth_factor), field("backoff_factor", &LossScale::backoff_factor),
            field("growth_interval", &LossScale::growth_interval)};
  }
};

struct Betas {
  static constexpr bool kRequired = true;
  double beta1 = 0.9, beta2 = 0.999;
  static std::vector<AttrField> fields() { return {field("beta1", &Betas::beta1), field("beta2", &Betas::beta2)}; }
};

}  // namespace npu::pointwise
