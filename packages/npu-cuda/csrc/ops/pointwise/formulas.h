// Expressions of more than one line, for the tables.
#pragma once

#include "ops/pointwise/attributes.h"
#include "ops/pointwise/math.h"

namespace npu::pointwise {

// The results of an op for one element, in the order of its outputs.
template <class V, int N>
struct Results {
  V of[N];
};

inline constexpr double kSqrtHalf = 0.70710678118654752;    // sqrt(1/2)
inline constexpr double kNormalPeak = 0.39894228040143268;  // 1 / sqrt(2 pi)
inline constexpr double kGeluScale = 0.79788456080286536;   // sqrt(2 / pi)
inline constexpr double kGeluCube = 0.044715;

// The remainder of a division that rounds down: its sign is that of y.
template <class V>
NPU_INLINE V remainder(V x, V y) {
  const V rest = fmod(x, y);
  return select(rest != 0 && (rest < 0) != (y < 0), rest + y, rest);
}

template <class V>
NPU_INLINE V floor_divide_integers(V x, V y) {
  const V rest = x - y * (x / y);
  const V is_rounded_up = rest != 0 && (rest < 0) != (y < 0);
  return select(y == 0, 0, x / y - is_rounded_up);
}

// As torch.lerp computes it, so that both ends are exact.
template <class V>
NPU_INLINE V lerp(V x, V end, V weight) {
  const V step = end - x;
  return select(abs(weight) < 0.5, fma(weight, step, x), end - step * (1 - weight));
}

// The powers that PyTorch computes by other functions, which are faster and exact.
template <class V>
NPU_INLINE V power_of_number(V x, double exponent) {
  if (exponent == 2) return x * x;
  if (exponent == 3) return x * x * x;
  if (exponent == 1) return x;
  if constexpr (!std::is_integral_v<typename V::Lane>) {
    if (exponent == 0.5) return sqrt(x);
    if (exponent == -0.5) return rsqrt(x);
    if (exponent == -1) return 1 / x;
    if (exponent == -2) return 1 / (x * x);
  }
  return pow(x, exponent);
}

// The logarithm of the number is computed once for all elements, where the compiler finds that it is the same for all.
template <class V>
NPU_INLINE V number_to_power(double x, V exponent) {
  if constexpr (std::is_same_v<typename V::Lane, float>) return pow(V(static_cast<float>(x)), exponent);
  else return pow(V(x), exponent);
}

template <class V>
NPU_INLINE V clamp(V x, V low, V high) { return minimum(maximum(x, low), high); }

// NaN stays NaN. A quotient takes ten times as long as a product.
template <class V>
NPU_INLINE V hardsigmoid(V x) {
  const V shifted = x + 3, above = select(shifted < 0, V(0), shifted);
  return select(above > 6, V(6), above) * (1.0 / 6);
}

// ---- activations and their gradients ----

// The probability that a normal number is less than x.
template <class V>
NPU_INLINE V normal_probability(V x) { return 0.5 * (1 + erf(x * kSqrtHalf)); }

template <class V>
NPU_INLINE V gelu_bwd(V dy, V x) {
  return dy * (normal_probability(x) + x * (kNormalPeak * exp(-0.5 * x * x)));
}

// x / 2 * (1 + tanh(curve)), without the difference of numbers of a size.
template <class V>
NPU_INLINE V gelu_tanh(V x) {
  return x / (1 + exp(-2 * kGeluScale * fma(kGeluCube * x * x, x, x)));
}

template <class V>
NPU_INLINE V gelu_tanh_bwd(V dy, V x) {
  const V curve = tanh(kGeluScale * fma(kGeluCube * x * x, x, x));
  const V slope = kGeluScale * (1 + 3 * kGeluCube * x * x);
  return dy * 0.5 * (1 + curve + x * (1 - curve * curve) * slope);
}

template <class V>
NPU_INLINE V silu_bwd(V dy, V x) {
  const V gate = sigmoid(x);
  return dy * gate * (1 + x * (1 - gate));
}

template <class V>
NPU_INLINE V softplus(V x, const SoftplusAttrs& p) {
  const V scaled = x * p.beta;
  return select(scaled > p.threshold, x, log1p(exp(scaled)) / p.beta);
}

template <class V>
NPU_INLINE V softplus_bwd(V dy, V x, const SoftplusAttrs& p) {
  const V scaled = x * p.beta;
  return select(scaled > p.threshold, dy, dy * sigmoid(scaled));
}

template <class V>
NPU_INLINE V hardswish_bwd(V dy, V x) {
  return select(x <= -3, 0, select(x >= 3, dy, dy * (x / 3 + 0.5)));
}

template <class V>
NPU_INLINE V elu(V x, const EluAttrs& p) {
  return select(x > 0, x * p.scale, expm1(x * p.input_scale) * (p.alpha * p.scale));
}

template <class V>
NPU_INLINE V elu_bwd(V dy, V x, const EluAttrs& p) {
  const double factor = p.alpha * p.scale;
  const V below = p.is_result != 0 ? V(x + factor) : V(exp(x * p.input_scale) * factor);
  return dy * select(x > 0, V(p.scale), below * p.input_scale);
}

// ---- optimizers ----

// Without a decay an infinite parameter stays: 0 times infinity is NaN.
template <class V>
NPU_INLINE V sgd_slope(V param, V grad, const Sgd& p) {
  const V decay(p.weight_decay);  // GCC 12 fills a vector within a condition lane by lane, each time.
  const V gradient = (p.flags & 4) != 0 ? V(-grad) : grad;
  return p.weight_decay != 0 ? V(fma(decay, param, gradient)) : gradient;
}

template <class V>
NPU_INLINE V sgd(V param, V grad, V lr, const Sgd& p) {
  return param - lr * sgd_slope(param, grad, p);
}

template <class V>
NPU_INLINE Results<V, 2> sgd_momentum(V param, V grad, V momentum, V lr, const Sgd& p) {
  const V slope = sgd_slope(param, grad, p);
  const V factor(p.momentum), share(1.0 - p.dampening);  // as above
  const V next = (p.flags & 2) != 0 ? slope : V(momentum * factor + slope * share);
  const V step = (p.flags & 1) != 0 ? V(fma(next, factor, slope)) : next;
  return {{param - lr * step, next}};
}

// The new moments, and what the parameter is before its step.
template <class V>
NPU_INLINE Results<V, 3> adam_moments(V param, V grad, V m, V v, V lr, const Adam& p) {
  const bool is_adamw = (p.flags & 1) != 0;
  const V gradient = (p.flags & 2) != 0 ? V(-grad) : grad;
  const V decay(p.weight_decay), rest(1.0 - lr * decay);  // as above
  const bool decays = p.weight_decay != 0;
  const V slope = is_adamw || !decays ? gradient : V(fma(param, decay, gradient));
  const V start = is_adamw && decays ? V(param * rest) : param;
  return {{start, m * p.beta1 + slope * (1 - p.beta1), v * p.beta2 + slope * slope * (1 - p.beta2)}};
}

// `inverse1` and `inverse2` are 1 / (1 - beta^step), of BiasCorr.
template <class V>
NPU_INLINE V adam_step(V start, V m, V v, V inverse1, V inverse2, V lr, const Adam& p) {
  return start - lr * (m * inverse1) / (sqrt(v * inverse2) + p.eps);
}

template <class V>
NPU_INLINE Results<V, 3> adam(V param, V grad, V m, V v, V inverse1, V inverse2, V lr, const Adam& p) {
  const auto next = adam_moments(param, grad, m, v, lr, p);
  return {{adam_step(next.of[0], next.of[1], next.of[2], inverse1, inverse2, lr, p), next.of[1], next.of[2]}};
}

// The step is divided by the largest second moment so far.
template <class V>
NPU_INLINE Results<V, 4> amsgrad(V param, V grad, V m, V v, V largest, V inverse1, V inverse2, V lr, const Adam& p) {
  const auto next = adam_moments(param, grad, m, v, lr, p);
  const V most = maximum(largest, next.of[2]);
  return {{adam_step(next.of[0], next.of[1], most, inverse1, inverse2, lr, p), next.of[1], next.of[2], most}};
}

// Returns the new scale and the count of steps since it changed. It backs off where a gradient was not finite, and grows after
// an interval of finite ones, unless it became infinite in float32.
template <class V>
NPU_INLINE Results<V, 2> loss_scale_update(V scale, V growth, V found_inf, const LossScale& p) {
  constexpr double kRoundsToInfinity = 3.4028235677973366e38;
  const V count = growth + 1, grown = scale * p.growth_factor;
  const auto is_due = count == double(p.growth_interval);
  const V next = select(is_due && grown < kRoundsToInfinity, grown, scale);
  return {{select(found_inf != 0, scale * p.backoff_factor, next), select(found_inf != 0 || is_due, 0, count)}};
}

template <class V>
NPU_INLINE V bias_correction(V step, double beta) { return 1 / (1 - pow(V(beta), maximum(step, 1))); }

}  // namespace npu::pointwise
