// Batch norms of x [N, C, *]: y = (x - mean) * rstd * gamma + beta for each channel, and their gradients,
// composed of reductions and pointwise loops. Statistics have the type that is computed in: float32, or
// float64 for float64.
//
//   BatchNormFwd: (x[, gamma, beta]) -> (y, mean, rstd[, var]), var without a correction; with running statistics also
//     mean and var, which are not results then
//   BatchNormBwd: (dy, x, mean, rstd[, gamma]) -> (dx, dgamma, dbeta); with running statistics var for rstd
// With a relu behind a norm with gamma and beta, y is what the relu returns; the gradient takes that y as its last
// input, and dy is the gradient of it.
#pragma once

#include "ops/pointwise/pointwise.h"
#include "ops/reduce/op.h"

namespace npu::reduce {

struct BatchNorm {
  float eps = 1e-5f;
  uint32_t flags = 0;  // 1: running statistics; 2: a relu follows
  float eps_rest = 0;  // added to eps: float64 needs more digits than float32 has

  static std::vector<AttrField> fields() {
    return {field("eps", &BatchNorm::eps), field("flags", &BatchNorm::flags), field("eps_rest", &BatchNorm::eps_rest)};
  }
  bool has_running() const { return flags & 1; }
  bool has_relu() const { return flags & 2; }
};

std::vector<OpInfo> batch_norm_infos();
Status check_batch_norm_fwd(Class type, const OpCall& call);
Status check_batch_norm_bwd(Class type, const OpCall& call);

std::vector<KernelPtr> batch_norm_host_kernels();
std::vector<KernelPtr> batch_norm_cuda_kernels();

namespace step {

using pointwise::None;
using pointwise::Results;

// Of one element of a channel.
struct InverseDeviation {
  using Attrs = BatchNorm;
  static constexpr Row row{"BatchNormFwd", OpKind{15}, kReal, "(V var)", "(rstd)", "", "rsqrt(var + eps)"};
  template <class V>
  static NPU_INLINE Results<V, 1> at(const Attrs& p, V var) { return {{rsqrt(var + (double(p.eps) + double(p.eps_rest)))}}; }
};

struct Normalize {
  using Attrs = None;
  static constexpr Row row{"BatchNormFwd", OpKind{15}, kReal, "(V x, V mean, V rstd)", "(y)", "",
                           "(x - mean) * rstd"};
  template <class V>
  static NPU_INLINE Results<V, 1> at(const Attrs&, V x, V mean, V rstd) { return {{(x - mean) * rstd}}; }
};

struct NormalizeAffine {
  using Attrs = None;
  static constexpr Row row{"BatchNormFwd", OpKind{15}, kReal, "(V x, V mean, V rstd, V gamma, V beta)",
                           "(y)", "",
                           "(x - mean) * (rstd * gamma) + beta"};
  template <class V>
  static NPU_INLINE Results<V, 1> at(const Attrs&, V x, V mean, V rstd, V gamma, V beta) {
    return {{fma(x - mean, rstd * gamma, beta)}};
  }
};

struct NormalizeRelu {
  using Attrs = None;
  static constexpr Row row{"BatchNormFwd", OpKind{15}, kReal, "(V x, V mean, V rstd, V gamma, V beta)",
                           "(y)", "",
                           "relu((x - mean) * (rstd * gamma) + beta)"};
  template <class V>
  static NPU_INLINE Results<V, 1> at(const Attrs& p, V x, V mean, V rstd, V gamma, V beta) {
    return pointwise::op::EltwiseRelu::at<V>({}, NormalizeAffine::at<V>(p, x, mean, rstd, gamma, beta).of[0]);
  }
};

// dy times the normalized x, whose sum is dgamma.
struct Projection {
  using Attrs = None;
  static constexpr Row row{"BatchNormBwd", OpKind{16}, kReal, "(V dy, V x, V mean, V rstd)", "(y)", "",
                           "dy * (x - mean) * rstd"};
  template <class V>
  static NPU_INLINE Results<V, 1> at(const Attrs&, V dy, V x, V mean, V rstd) {
    return {{dy * ((x - mean) * rstd)}};
  }
};

// A sum of dy * (x - mean), where they are not added one by one; and the gradient of a norm whose statistics are
// constants, where dy of one element reaches no other.
struct Scale {
  using Attrs = None;
  static constexpr Row row{"BatchNormBwd", OpKind{16}, kReal, "(V sum, V rstd)", "(dgamma)", "", "sum * rstd"};
  template <class V>
  static NPU_INLINE Results<V, 1> at(const Attrs&, V sum, V rstd) { return {{sum * rstd}}; }
};

struct ScaleAffine {
  using Attrs = None;
  static constexpr Row row{"BatchNormBwd", OpKind{16}, kReal, "(V dy, V rstd, V gamma)", "(dx)", "",
                           "gamma * (rstd * dy)"};
  template <class V>
  static NPU_INLINE Results<V, 1> at(const Attrs&, V dy, V rstd, V gamma) { return {{gamma * (rstd * dy)}}; }
};

struct Count {
  double share = 1;  // one of the elements of a channel
};

struct Gradient {
  using Attrs = Count;
  static constexpr Row row{"BatchNormBwd", OpKind{16}, kReal,
                           "(V dy, V x, V mean, V rstd, V dgamma, V dbeta)", "(dx)", "",
                           "rstd * (dy - (dbeta + (x - mean) * rstd * dgamma) / n)"};
  template <class V>
  static NPU_INLINE Results<V, 1> at(const Attrs& p, V dy, V x, V mean, V rstd, V dgamma, V dbeta) {
    return {{rstd * (dy - p.share * fma((x - mean) * rstd, dgamma, dbeta))}};
  }
};

struct GradientAffine {
  using Attrs = Count;
  static constexpr Row row{"BatchNormBwd", OpKind{16}, kReal,
                           "(V dy, V x, V mean, V rstd, V dgamma, V dbeta, V gamma)", "(dx)", "",
                               "gamma * gradient"};
  template <class V>
  static NPU_INLINE Results<V, 1> at(const Attrs& p, V dy, V x, V mean, V rstd, V dgamma, V dbeta, V gamma) {
    return {{gamma * Gradient::at<V>(p, dy, x, mean, rstd, dgamma, dbeta).of[0]}};
  }
};

}  // namespace step
}  // namespace npu::reduce
