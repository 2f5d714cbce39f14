// The ops of the tables as types: op::Gelu::at<V>(attributes, x) is the result for one element, whatever V
// computes it; op::Gelu::row says the rest. AllArithmetic and AllTraining list them.
#pragma once

#include <string_view>
#include <utility>

#include "ops/pointwise/formulas.h"

namespace npu::pointwise {

// What an op computes in. A call is computed in the first of them, in this order, that is not below what any
// of its tensors is stored in: bool and integers in int64, the 16-bit floats and float32 in float32, float64
// in float64. Values are converted when they are read, and rounded once when they are written.
enum Class : unsigned { kInt64 = 1, kFloat32 = 2, kFloat64 = 4 };
inline constexpr unsigned kConverts = 8;  // the dtypes of outputs do not depend on those of inputs
inline constexpr unsigned kWhole = kInt64, kReal = kFloat32 | kFloat64, kAny = kWhole | kReal;
inline constexpr unsigned kTruth = kAny | kConverts, kCast = kAny | kConverts, kDouble = kFloat64 | kConverts;

constexpr int count_of(std::string_view text, char letter) {
  int count = 0;
  for (const char each : text) count += each == letter;
  return count;
}

struct Row {
  std::string_view name;
  OpKind kind;
  unsigned classes;
  std::string_view inputs;   // "(V x, V other)"
  std::string_view outputs;  // "(y)"
  std::string_view schema;   // four letters, or none
  std::string_view text;     // of the expression

  constexpr int num_inputs() const { return count_of(inputs, 'V'); }
  constexpr int num_outputs() const { return count_of(outputs, ',') + 1; }
};

template <class V, int N>
NPU_INLINE Results<V, N> results(Results<V, N> all) { return all; }
template <class V, int N, class... Each>
NPU_INLINE Results<V, N> results(Each... each) { return {{V(each)...}}; }

#define NPU_PARAMETERS(...) __VA_OPT__(, ) __VA_ARGS__
#define OP(kind_, name_, classes_, inputs_, outputs_, attrs_, schema_, ...)                                    \
  struct name_ {                                                                                               \
    using Attrs = attrs_;                                                                                      \
    static constexpr Row row{#name_, OpKind{kind_}, classes_, #inputs_, #outputs_, schema_, #__VA_ARGS__};     \
    static constexpr int kResults = row.num_outputs();                                                         \
    template <class V>                                                                                         \
    static NPU_INLINE Results<V, kResults> at([[maybe_unused]] const Attrs& p NPU_PARAMETERS inputs_) {        \
      return results<V, kResults>(__VA_ARGS__);                                                                \
    }                                                                                                          \
  };
#define PAIR(kind_, name_, classes_, schema_, ...)                                                             \
  OP(kind_, name_, classes_, (V x, V other), (y), None, "", __VA_ARGS__)                                       \
  struct name_##Scalar {                                                                                       \
    using Attrs = Other;                                                                                       \
    static constexpr Row row{#name_ "Scalar", OpKind{kind_ + 1}, classes_, "(V x)", "(y)", schema_, #__VA_ARGS__}; \
    template <class V>                                                                                         \
    static NPU_INLINE Results<V, 1> at(const Attrs& p, V x) { return name_::at<V>({}, x, V(p.other)); }        \
  };

namespace op {
#include "ops/pointwise/table_arithmetic.h"
#include "ops/pointwise/table_training.h"
}  // namespace op

#undef OP
#undef PAIR
#undef NPU_PARAMETERS

template <class... Fns>
struct Ops {};

template <class... Fns>
Ops<Fns...> without_end(Ops<void, Fns...>);

#define OP(kind, name, ...) , op::name
#define PAIR(kind, name, ...) , op::name, op::name##Scalar
using AllArithmetic = decltype(without_end(Ops<void
#include "ops/pointwise/table_arithmetic.h"
                                               >()));
using AllTraining = decltype(without_end(Ops<void
#include "ops/pointwise/table_training.h"
                                             >()));
#undef OP
#undef PAIR

template <class Fn>
inline constexpr int kInputs = Fn::row.num_inputs();
template <class Fn>
inline constexpr int kOutputs = Fn::row.num_outputs();

template <class Fn, class V, size_t... i>
NPU_INLINE Results<V, kOutputs<Fn>> apply(const typename Fn::Attrs& p, [[maybe_unused]] const V* x,
                                          std::index_sequence<i...>) {
  return Fn::template at<V>(p, x[i]...);
}

// The expression of an op for the values of its inputs.
template <class Fn, class V>
NPU_INLINE Results<V, kOutputs<Fn>> apply(const typename Fn::Attrs& p, const V* x) {
  return apply<Fn>(p, x, std::make_index_sequence<size_t(kInputs<Fn>)>());
}

}  // namespace npu::pointwise
