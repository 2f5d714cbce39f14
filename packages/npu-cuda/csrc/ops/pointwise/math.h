// The functions of expressions over single numbers; vector_math.h has them for the vectors of the host. And
// what both compose from simpler functions. Special values (NaN, infinities, -0.0, division by 0) are those
// of PyTorch.
#pragma once

#include <cmath>
#include <concepts>

#include "ops/pointwise/value.h"

namespace npu::pointwise {

template <class T>
concept Number = std::is_arithmetic_v<T>;
template <class T>
concept RealNumber = std::is_floating_point_v<T>;

template <RealNumber T>
NPU_INLINE Value<T> exp(Value<T> x) { return Value<T>::of(std::exp(x.raw)); }
template <RealNumber T>
NPU_INLINE Value<T> expm1(Value<T> x) { return Value<T>::of(std::expm1(x.raw)); }
template <RealNumber T>
NPU_INLINE Value<T> log(Value<T> x) { return Value<T>::of(std::log(x.raw)); }
template <RealNumber T>
NPU_INLINE Value<T> log1p(Value<T> x) { return Value<T>::of(std::log1p(x.raw)); }
template <RealNumber T>
NPU_INLINE Value<T> sqrt(Value<T> x) { return Value<T>::of(std::sqrt(x.raw)); }
template <RealNumber T>
NPU_INLINE Value<T> sin(Value<T> x) { return Value<T>::of(std::sin(x.raw)); }
template <RealNumber T>
NPU_INLINE Value<T> cos(Value<T> x) { return Value<T>::of(std::cos(x.raw)); }
template <RealNumber T>
NPU_INLINE Value<T> tanh(Value<T> x) { return Value<T>::of(std::tanh(x.raw)); }
template <RealNumber T>
NPU_INLINE Value<T> erf(Value<T> x) { return Value<T>::of(std::erf(x.raw)); }
template <RealNumber T>
NPU_INLINE Value<T> floor(Value<T> x) { return Value<T>::of(std::floor(x.raw)); }
template <RealNumber T>
NPU_INLINE Value<T> ceil(Value<T> x) { return Value<T>::of(std::ceil(x.raw)); }
template <RealNumber T>
NPU_INLINE Value<T> trunc(Value<T> x) { return Value<T>::of(std::trunc(x.raw)); }
template <RealNumber T>
NPU_INLINE Value<T> round(Value<T> x) { return Value<T>::of(std::nearbyint(x.raw)); }  // ties to even

template <class T>
NPU_INLINE Value<T> larger(Value<T> a, Value<T> b) { return select(a > b || a != a, a, b); }
template <class T>
NPU_INLINE Value<T> smaller(Value<T> a, Value<T> b) { return select(a < b || a != a, a, b); }

template <Number T>
NPU_INLINE Value<T> fused(Value<T> a, Value<T> b, Value<T> c) {
  if constexpr (RealNumber<T>) return Value<T>::of(std::fma(a.raw, b.raw, c.raw));
  else return a * b + c;
}

// x to an integer power, by squaring; 1 / x^n is 0 but for 1 and -1.
NPU_INLINE int64_t integer_power(int64_t x, int64_t n) {
  if (n < 0) return x == 1 ? 1 : x == -1 ? (n % 2 == 0 ? 1 : -1) : 0;
  uint64_t result = 1, factor = static_cast<uint64_t>(x);
  for (; n > 0; n >>= 1, factor *= factor) {
    if (n & 1) result *= factor;
  }
  return static_cast<int64_t>(result);
}

template <Number T>
NPU_INLINE Value<T> power(Value<T> x, Value<T> y) {
  if constexpr (RealNumber<T>) return Value<T>::of(std::pow(x.raw, y.raw));
  else return Value<T>::of(integer_power(x.raw, y.raw));
}

// x - y * trunc(x / y): the sign is that of x.
template <RealNumber T>
NPU_INLINE Value<T> truncated_remainder(Value<T> x, Value<T> y) { return Value<T>::of(std::fmod(x.raw, y.raw)); }
template <std::integral T>
NPU_INLINE Value<T> truncated_remainder(Value<T> x, Value<T> y) { return x - y * (x / y); }

// ---- of numbers and vectors ----

template <class T>
NPU_INLINE Value<T> abs(Value<T> x) { return select(x < 0, -x, x + 0.0); }  // -0.0 + 0.0 is 0.0

template <class T>
NPU_INLINE Value<T> square(Value<T> x) { return x * x; }

template <class T>
NPU_INLINE Value<T> sign(Value<T> x) { return Value<T>(x > 0) - Value<T>(x < 0); }

template <class T>
NPU_INLINE Value<T> rsqrt(Value<T> x) { return 1.0 / sqrt(x); }

template <class T>
NPU_INLINE Value<T> sigmoid(Value<T> x) { return 1.0 / (1.0 + exp(-x)); }

}  // namespace npu::pointwise
