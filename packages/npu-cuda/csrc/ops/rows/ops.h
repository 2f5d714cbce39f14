// The ops over rows as types: the formula, the kind, how the axes of its tensors are divided, and in what
// order its tensors are given.
#pragma once

#include "core/op_info.h"
#include "ops/rows/formulas.h"

namespace npu::rows {

struct Axis {
  int64_t axis = -1;  // of the rows; counted from the end where it is negative
  static std::vector<AttrField> fields() { return {field("axis", &Axis::axis)}; }
  double added() const { return 0; }
};

// What is added to the variance, in two parts: float64 needs more digits than the first one has.
struct LayerNormEps {
  float eps = 1e-5f, eps_rest = 0;
  static std::vector<AttrField> fields() {
    return {field("eps", &LayerNormEps::eps), field("eps_rest", &LayerNormEps::eps_rest)};
  }
  double added() const { return double(eps) + double(eps_rest); }
};

struct RmsNormEps {
  double eps = 1e-5;
  static std::vector<AttrField> fields() { return {field("eps", &RmsNormEps::eps)}; }
  double added() const { return eps; }
};

struct GroupsEps {
  int64_t groups = 1;
  double eps = 1e-5;
  static std::vector<AttrField> fields() {
    return {field("groups", &GroupsEps::groups), field("eps", &GroupsEps::eps)};
  }
  double added() const { return eps; }
};

struct Groups {
  int64_t groups = 1;
  static std::vector<AttrField> fields() { return {field("groups", &Groups::groups)}; }
  double added() const { return 0; }
};

struct NoAttrs {
  static std::vector<AttrField> fields() { return {}; }
  double added() const { return 0; }
};

// Which axes are of a row: one; the last ones, so that there are as many rows as means; or the channels of a
// group with all that follows.
enum class Split { OneAxis, LastAxes, Groups };

struct Line {
  OpKind kind;
  const char* name;
  const char* kernel;  // in the ids of its kernels
  const char* schema;
  Split split;
  int inputs, outputs;
};

template <class Formula_, class Attrs_>
struct Op {
  using Formula = Formula_;
  using Attrs = Attrs_;
};

namespace op {

struct Softmax : Op<SoftmaxFormula, Axis> {
  static constexpr Line line{OpKind{240}, "Softmax", "softmax", "SMAX", Split::OneAxis, 1, 1};
};
struct SoftmaxBwd : Op<SoftmaxBwdFormula, Axis> {
  static constexpr Line line{OpKind{241}, "SoftmaxBwd", "softmax_bwd", "SMXB", Split::OneAxis, 2, 1};
};
struct LogSoftmax : Op<LogSoftmaxFormula, Axis> {
  static constexpr Line line{OpKind{242}, "LogSoftmax", "log_softmax", "LSMX", Split::OneAxis, 1, 1};
};
struct LogSoftmaxBwd : Op<LogSoftmaxBwdFormula, Axis> {
  static constexpr Line line{OpKind{243}, "LogSoftmaxBwd", "log_softmax_bwd", "LSMB", Split::OneAxis, 2, 1};
};

// With gamma, or gamma and beta, where kAffine is 1 or 2.
template <int kAffine>
struct LayerNorm : Op<NormFormula<kAffine>, LayerNormEps> {
  static constexpr Line line{
      OpKind::LayerNormFwd, "LayerNormFwd", "layer_norm", "LNEP", Split::LastAxes, 1 + kAffine, 3};
};
template <int kAffine>
struct LayerNormBwd : Op<NormBwdFormula<kAffine>, NoAttrs> {
  static constexpr Line line{
      OpKind::LayerNormBwd, "LayerNormBwd", "layer_norm_bwd", "", Split::LastAxes, 4 + kAffine, 3};
};
template <int kAffine>
struct RmsNorm : Op<RmsNormFormula<kAffine>, RmsNormEps> {
  static constexpr Line line{OpKind{244}, "RmsNormFwd", "rms_norm", "RMSN", Split::LastAxes, 1 + kAffine, 2};
};
template <int kAffine>
struct RmsNormBwd : Op<RmsNormBwdFormula<kAffine>, NoAttrs> {
  static constexpr Line line{OpKind{245}, "RmsNormBwd", "rms_norm_bwd", "", Split::LastAxes, 3 + kAffine, 2};
};
template <int kAffine>
struct GroupNorm : Op<NormFormula<kAffine>, GroupsEps> {
  static constexpr Line line{
      OpKind{246}, "GroupNormFwd", "group_norm", "GNRM", Split::Groups, 1 + kAffine, 3};
};
template <int kAffine>
struct GroupNormBwd : Op<NormBwdFormula<kAffine>, Groups> {
  static constexpr Line line{
      OpKind{247}, "GroupNormBwd", "group_norm_bwd", "GNRB", Split::Groups, 4 + kAffine, 3};
};

}  // namespace op

// "layer_norm.gamma_beta", in the ids of kernels.
template <class Fn>
std::string kernel_name() {
  using F = typename Fn::Formula;
  const bool is_norm = F::kGiven + F::kMade > 0;
  const int affine = F::kInputs - (F::kGiven > 0 ? 2 : 1);
  return std::string(Fn::line.kernel) + (!is_norm || affine == 0 ? ""
                                         : affine == 1           ? ".gamma"
                                                                 : ".gamma_beta");
}

template <class Fn>
Cost cost(const OpCall& call) {
  return cost_of(call, 8.0 * double(call.inputs[0].numel));
}

template <class... Fns>
struct Ops {};

using Softmaxes = Ops<op::Softmax, op::SoftmaxBwd, op::LogSoftmax, op::LogSoftmaxBwd>;
using Norms = Ops<op::LayerNorm<0>, op::LayerNorm<1>, op::LayerNorm<2>, op::RmsNorm<0>, op::RmsNorm<1>,
                  op::GroupNorm<0>, op::GroupNorm<1>, op::GroupNorm<2>>;
using NormGradients = Ops<op::LayerNormBwd<0>, op::LayerNormBwd<1>, op::RmsNormBwd<0>, op::RmsNormBwd<1>,
                          op::GroupNormBwd<0>, op::GroupNormBwd<1>>;

}  // namespace npu::rows
