// Ops of random numbers: pointwise expressions whose first operand, `random`, is not a tensor but a number in [0, 1) for
// each element, by philox.h. Instead of it their calls have two inputs at the end: seed and offset, one int64 each.
#pragma once

#include "ops/pointwise/nest.h"
#include "ops/pointwise/philox.h"
#include "ops/pointwise/pointwise.h"

namespace npu::pointwise {

struct DropoutAttrs {
  double p = 0.5;
  static std::vector<AttrField> fields() { return {field("p", &DropoutAttrs::p)}; }
};

struct Interval {
  double low = 0, high = 1;
  static std::vector<AttrField> fields() { return {field("low", &Interval::low), field("high", &Interval::high)}; }
};

namespace op {

// As torch.native_dropout: what is kept is scaled, all else multiplied by 0.
struct Dropout {
  using Attrs = DropoutAttrs;
  static constexpr Row row{"Dropout", OpKind{420}, kReal | kConverts, "(V random, V x)", "(y, mask)", "DROP",
                           "x * ((random >= p) / (1 - p)), random >= p"};
  static constexpr int kResults = 2;
  template <class V>
  static NPU_INLINE Results<V, 2> at(const Attrs& attrs, V random, V x) {
    const V is_kept = random >= attrs.p;
    return {{x * select(random >= attrs.p, V(1 / (1 - attrs.p)), V(0)), is_kept}};
  }
};

struct Uniform {
  using Attrs = Interval;
  static constexpr Row row{"Uniform", OpKind{421}, kReal, "(V random)", "(y)", "UNIF", "fma(random, high - low, low)"};
  static constexpr int kResults = 1;
  template <class V>
  static NPU_INLINE Results<V, 1> at(const Attrs& attrs, V random) {
    return {{fma(random, attrs.high - attrs.low, attrs.low)}};
  }
};

}  // namespace op

using AllRandom = Ops<op::Dropout, op::Uniform>;

// A call with `random` in the place of seed and offset: a contiguous tensor of the shape of the output without memory,
// whose offsets are the numbers of elements.
class RandomCall {
 public:
  explicit RandomCall(const OpCall& call);
  const OpCall& call() const { return call_; }

 private:
  OpCall call_;
  TensorDesc inputs_[kMaxOperands];
};

std::vector<OpInfo> random_infos();
// Checks seed and offset, and the rest as for any pointwise op.
Status check_random(const Row& row, Class type, const OpCall& call);

std::vector<KernelPtr> random_host_kernels();
std::vector<KernelPtr> random_cuda_kernels();

}  // namespace npu::pointwise
