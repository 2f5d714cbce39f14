// What ops over rows compute, once for the vectors of the host and the threads of CUDA. A row is reduced by
// the steps of its op, one after the other, and then mapped to its result. A step has a term for each place
// of the row, over which it takes the sum or the largest; `finish` makes numbers of the row (s) from the
// total. The term of a step that is kept is there again for the result, which needs no input then. The steps
// of an op that is one pass (kIsOnePass) do not need numbers of each other.
#pragma once

#include <type_traits>

#include "ops/pointwise/math.h"

namespace npu::rows {

using pointwise::Value;

struct Sum {
  static constexpr bool is_sum = true, is_kept = false;
};

// The larger one may lose a NaN: of a row that has one, the sum of exponentials is NaN.
template <bool kIsSum, class V>
NPU_INLINE V join(V a, V b) {
  if constexpr (kIsSum) return a + b;
  else return select(a > b, a, b);
}

// Numbers of a row that are not attributes.
inline constexpr int kNumbers = 4;

template <class... Each>
struct Steps {};

// The step whose terms are kept for the result.
template <class... Each>
struct KeptOf {
  using type = void;
};
template <class First, class... Rest>
struct KeptOf<First, Rest...> {
  using type = std::conditional_t<First::is_kept, First, typename KeptOf<Rest...>::type>;
};

// ---- softmax ----

struct Largest {
  static constexpr bool is_sum = false, is_kept = false;
  template <class V>
  static NPU_INLINE V term(const V* in, const V*) { return in[0]; }
  template <class N>
  static NPU_INLINE void finish(N total, N, double, N* s) { s[0] = total; }
};

// Less the largest one: no exponential is above 1, and one is 1.
template <bool kKept>
struct Exponentials {
  static constexpr bool is_sum = true, is_kept = kKept;
  template <class V>
  static NPU_INLINE V term(const V* in, const V* s) { return exp(in[0] - s[0]); }
  template <class N>
  static NPU_INLINE void finish(N total, N, double, N* s) { s[1] = kKept ? 1.0 / total : log(total); }
};

struct SoftmaxFormula {
  using Reductions = Steps<Largest, Exponentials<true>>;
  static constexpr int kInputs = 1, kGiven = 0, kMade = 0, kFirstNumber = 0;
  static constexpr bool kHasResult = true, kIsOnePass = false;
  template <class V>
  static NPU_INLINE V result(const V*, V kept, const V* s) { return kept * s[1]; }
};

struct LogSoftmaxFormula : SoftmaxFormula {
  using Reductions = Steps<Largest, Exponentials<false>>;
  template <class V>
  static NPU_INLINE V result(const V* in, V, const V* s) { return in[0] - s[0] - s[1]; }
};

// The sum of dy, or of dy * y.
template <bool kWeighted>
struct Gradients : Sum {
  template <class V>
  static NPU_INLINE V term(const V* in, const V*) { return kWeighted ? in[0] * in[1] : in[0]; }
  template <class N>
  static NPU_INLINE void finish(N total, N, double, N* s) { s[0] = total; }
};

struct SoftmaxBwdFormula : SoftmaxFormula {
  using Reductions = Steps<Gradients<true>>;
  static constexpr int kInputs = 2;
  template <class V>
  static NPU_INLINE V result(const V* in, V, const V* s) { return (in[0] - s[0]) * in[1]; }
};

struct LogSoftmaxBwdFormula : SoftmaxBwdFormula {
  using Reductions = Steps<Gradients<false>>;
  template <class V>
  static NPU_INLINE V result(const V* in, V, const V* s) { return in[0] - exp(in[1]) * s[0]; }
};

// ---- norms: s[0] is the mean, 0 for the root of the mean square, s[1] is 1 / the standard deviation ----

struct Mean : Sum {
  template <class V>
  static NPU_INLINE V term(const V* in, const V*) { return in[0]; }
  template <class N>
  static NPU_INLINE void finish(N total, N count, double, N* s) { s[0] = total / count; }
};

struct Deviation : Sum {
  template <class V>
  static NPU_INLINE V term(const V* in, const V* s) { return square(in[0] - s[0]); }
  template <class N>
  static NPU_INLINE void finish(N total, N count, double eps, N* s) {
    s[1] = 1.0 / sqrt(total / count + eps);
  }
};

// x, then gamma and beta where kAffine is 1 or 2.
template <int kAffine>
struct NormFormula {
  using Reductions = Steps<Mean, Deviation>;
  static constexpr int kInputs = 1 + kAffine, kGiven = 0, kMade = 2, kFirstNumber = 0;
  static constexpr int kReduced = 1;  // inputs that reductions read; without it all
  static constexpr bool kHasResult = true, kIsOnePass = false;
  template <class V>
  static NPU_INLINE V result(const V* in, V, const V* s) {
    V y = (in[0] - s[0]) * s[1];
    if constexpr (kAffine > 0) y = y * in[1];
    if constexpr (kAffine > 1) y = y + in[2];
    return y;
  }
};

template <int kAffine>
struct RmsNormFormula : NormFormula<kAffine> {
  using Reductions = Steps<Deviation>;
  static constexpr int kMade = 1, kFirstNumber = 1;
};

// The gradient of (x - mean) * rstd: that of y, by gamma if there is one.
template <int kAffine, class V>
NPU_INLINE V gradient(const V* in) {
  if constexpr (kAffine > 0) return in[1] * in[2];
  else return in[1];
}

template <int kAffine>
struct MeanGradient : Sum {
  template <class V>
  static NPU_INLINE V term(const V* in, const V*) { return gradient<kAffine>(in); }
  template <class N>
  static NPU_INLINE void finish(N total, N count, double, N* s) { s[2] = total / count; }
};

template <int kAffine>
struct ScaledGradient : Sum {
  template <class V>
  static NPU_INLINE V term(const V* in, const V* s) {
    return gradient<kAffine>(in) * ((in[0] - s[0]) * s[1]);
  }
  template <class N>
  static NPU_INLINE void finish(N total, N count, double, N* s) { s[3] = total / count; }
};

// x, dy, then gamma where kAffine is 1; mean and rstd are given.
template <int kAffine>
struct NormBwdFormula {
  using Reductions = Steps<MeanGradient<kAffine>, ScaledGradient<kAffine>>;
  static constexpr int kInputs = 2 + kAffine, kGiven = 2, kMade = 0, kFirstNumber = 0;
  static constexpr bool kHasResult = true, kIsOnePass = true;
  template <class V>
  static NPU_INLINE V result(const V* in, V, const V* s) {
    return (gradient<kAffine>(in) - s[2] - (in[0] - s[0]) * s[1] * s[3]) * s[1];
  }
};

template <int kAffine>
struct RmsNormBwdFormula : NormBwdFormula<kAffine> {
  using Reductions = Steps<ScaledGradient<kAffine>>;  // s[2] stays 0
  static constexpr int kGiven = 1, kFirstNumber = 1;
};

// ---- gradients of gamma and beta of one channel: x, dy, mean and rstd of each place ----

struct GammaGradient : Sum {
  template <class V>
  static NPU_INLINE V term(const V* in, const V*) { return in[1] * ((in[0] - in[2]) * in[3]); }
  template <class N>
  static NPU_INLINE void finish(N total, N, double, N* s) { s[0] = total; }
};

struct BetaGradient : Sum {
  template <class V>
  static NPU_INLINE V term(const V* in, const V*) { return in[1]; }
  template <class N>
  static NPU_INLINE void finish(N total, N, double, N* s) { s[1] = total; }
};

struct ChannelFormula {
  using Reductions = Steps<GammaGradient, BetaGradient>;
  static constexpr int kInputs = 4, kGiven = 0, kMade = 2, kFirstNumber = 0;
  static constexpr bool kHasResult = false, kIsOnePass = true;
};

}  // namespace npu::rows
