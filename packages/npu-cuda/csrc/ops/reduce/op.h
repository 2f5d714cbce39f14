// The reductions of the table as types: op::Sum::step<V>(attributes, a, x, m) is a state after one more
// element, whatever V computes it. AllReductions lists them.
#pragma once

#include <limits>

#include "ops/pointwise/op.h"
#include "ops/reduce/attributes.h"

namespace npu::reduce {

using pointwise::Class;
using pointwise::kAny;
using pointwise::kFloat32;
using pointwise::kFloat64;
using pointwise::kInt64;
using pointwise::kReal;
using pointwise::kTruth;
using pointwise::Ops;
using pointwise::Row;
using pointwise::Value;

inline constexpr unsigned kNotEmpty = 16;  // undefined for no elements
inline constexpr unsigned kNoTruth = 32;   // has no result of bool

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

template <class T>
NPU_INLINE Value<T> finite(Value<T> x) { return select(abs(x) == kInfinity, 0, x); }

#define REDUCE(kind_, name_, classes_, attrs_, schema_, first_, start_, step_, merge_, finish_)              \
  struct name_ {                                                                                             \
    using Attrs = attrs_;                                                                                    \
    using First = first_;                                                                                    \
    static constexpr Row row{#name_, OpKind{kind_}, classes_, "(V x)", "(y)", schema_, #step_};              \
    template <class V>                                                                                       \
    static NPU_INLINE V start() { return V(start_); }                                                        \
    template <class V>                                                                                       \
    static NPU_INLINE V step([[maybe_unused]] const Attrs& p, V a, V x, [[maybe_unused]] V m) {              \
      return step_;                                                                                          \
    }                                                                                                        \
    template <class V>                                                                                       \
    static NPU_INLINE V merge(V a, V b) { return merge_; }                                                   \
    template <class V>                                                                                       \
    static NPU_INLINE V finish([[maybe_unused]] const Attrs& p, V a, [[maybe_unused]] V m,                   \
                               [[maybe_unused]] double n) { return finish_; }                                \
  };

namespace op {
#include "ops/reduce/table.h"
}  // namespace op
#undef REDUCE

#define REDUCE(kind, name, ...) , op::name
using AllReductions = decltype(pointwise::without_end(Ops<void
#include "ops/reduce/table.h"
                                                          >()));
#undef REDUCE

template <class Fn>
inline constexpr bool kIsTwice = !std::is_void_v<typename Fn::First>;

}  // namespace npu::reduce
