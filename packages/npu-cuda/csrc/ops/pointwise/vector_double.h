// Functions of two vectors of floats that are computed in double, half a vector at a time. x^y is
// 2^(y log2 x): a double has digits enough for the result to be within a unit in the last place, whatever y
// makes of the error of the logarithm. A remainder is exact.
#pragma once

#include "ops/pointwise/vector_math.h"

namespace npu::pointwise {

// Doubles of half the lanes of T.
template <FloatVector T>
struct Wide {
  using Floats = typename VectorOf<float, sizeof(T) / 2>::type;
  using Doubles = typename VectorOf<double, sizeof(T)>::type;
  using Longs = typename VectorOf<int64_t, sizeof(T)>::type;
};

// c0 + c1 x + c2 x^2 + ...
template <class D, class... More>
NPU_INLINE D wide_polynomial(const D& x, double c0, More... more) {
  if constexpr (sizeof...(More) == 0) return D{} + c0;
  else return wide_polynomial(x, more...) * x + c0;
}

// (mantissa * 2^n)^y for mantissas from 2/3 to 4/3 whose result is not NaN.
template <FloatVector T, class W = Wide<T>>
NPU_INLINE auto half_power(typename W::Floats mantissa, typename W::Floats n, typename W::Floats y) {
  using D = typename W::Doubles;
  const D x = __builtin_convertvector(mantissa, D) - 1.0;
  const D tail = wide_polynomial(x, 1.4426950408923285, -0.721347519569272, 0.48089834396294673,
                                 -0.3606739786231225, 0.28853944159822376, -0.24043365996373242,
                                 0.20607597849781223, -0.18080607406731686, 0.16089114324521783,
                                 -0.13746100170929942, 0.12356347090325405, -0.16610563758145025,
                                 0.15753984136658147);
  const D log2 = tail * x + __builtin_convertvector(n, D);
  D exponent = log2 * __builtin_convertvector(y, D);
  exponent = exponent > 200.0 ? D{} + 200.0 : exponent < -200.0 ? D{} - 200.0 : exponent;
  const D shifted = exponent + 6755399441055744.0;  // 1.5 * 2^52
  const D rest = exponent - (shifted - 6755399441055744.0);
  const D power = wide_polynomial(rest, 1.0, 0.6931472057670719, 0.24022646885924367, 0.055503287119148446,
                                  0.009618489261220222, 0.0013399957592019627, 0.000153457844509542);
  using Longs = typename W::Longs;
  const Longs bits = std::bit_cast<Longs>(power) + (std::bit_cast<Longs>(shifted) << 52);
  return __builtin_convertvector(std::bit_cast<D>(bits), typename W::Floats);
}

// x - y * trunc(x / y) of a quotient below 2^28, which a double tells from every integer that it is not.
template <FloatVector T, class W = Wide<T>>
NPU_INLINE auto half_remainder(typename W::Floats x, typename W::Floats y) {
  using D = typename W::Doubles;
  using Ints = typename VectorOf<int32_t, sizeof(T) / 2>::type;
  const D dividend = __builtin_convertvector(x, D), divisor = __builtin_convertvector(y, D);
  const D quotient = __builtin_convertvector(__builtin_convertvector(dividend / divisor, Ints), D);
  return __builtin_convertvector(dividend - quotient * divisor, typename W::Floats);
}

// function(half of a, half of b, ...) of both halves.
template <FloatVector T, class F, class... More>
NPU_INLINE Value<T> by_halves(F function, More... more) {
  using Floats = typename Wide<T>::Floats;
  Floats halves[sizeof...(More)][2], results[2];
  int row = 0;
  (std::memcpy(halves[row++], &more.raw, sizeof(T)), ...);
  for (int i = 0; i < 2; ++i) {
    if constexpr (sizeof...(More) == 2) results[i] = function(halves[0][i], halves[1][i]);
    else results[i] = function(halves[0][i], halves[1][i], halves[2][i]);
  }
  Value<T> result;
  std::memcpy(&result.raw, results, sizeof(T));
  return result;
}

template <FloatVector T>
NPU_INLINE Value<T> power_of_normal(Value<T> x, Value<T> y) {
  const IntsOf<T> n = negative_exponent(x);
  const Value<T> mantissa = from_bits<T>(to_bits(x) + n), exponent = to_floats<T>(n) * (-1.0 / 8388608);
  constexpr auto function = [](auto... of) __attribute__((always_inline)) { return half_power<T>(of...); };
  return by_halves<T>(function, mantissa, exponent, y);
}

template <FloatVector T>
NPU_INLINE Value<T> power(Value<T> x, Value<T> y) {
  constexpr auto of_numbers = [](float a, float b) { return std::pow(a, b); };
  if constexpr (sizeof(T) == 16) return each(of_numbers, x, y);  // no instructions that make it worth while
  else {
    const Value<T> result = power_of_normal(x, y);
    const Mask<T> special = is_special(x) || !(abs(y) <= std::numeric_limits<float>::max());
    return any(special) ? select(special, each(of_numbers, x, y), result) : result;
  }
}

template <FloatVector T>
NPU_INLINE Value<T> truncated_remainder(Value<T> x, Value<T> y) {
  constexpr auto of_numbers = [](float a, float b) { return std::fmod(a, b); };
  constexpr auto half = [](auto a, auto b) __attribute__((always_inline)) { return half_remainder<T>(a, b); };
  const Value<T> result = with_sign_of(by_halves<T>(half, x, y), x);
  const Mask<T> is_exact = abs(x) < abs(y) * 268435456.0 && abs(y) <= std::numeric_limits<float>::max();
  return any(!is_exact) ? select(is_exact, result, each(of_numbers, x, y)) : result;
}

}  // namespace npu::pointwise
