// x^y of vectors of floats: 2^(y log2 x) in double, half a vector at a time. A double has digits enough for
// the result to be within a unit in the last place, whatever y makes of the error of the logarithm.
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

template <FloatVector T>
NPU_INLINE Value<T> power_of_normal(Value<T> x, Value<T> y) {
  using Floats = typename Wide<T>::Floats;
  const IntsOf<T> n = negative_exponent(x);
  const Value<T> mantissa = from_bits<T>(to_bits(x) + n), exponent = to_floats<T>(n) * (-1.0 / 8388608);
  Floats mantissas[2], exponents[2], ys[2];
  std::memcpy(mantissas, &mantissa.raw, sizeof(T));
  std::memcpy(exponents, &exponent.raw, sizeof(T));
  std::memcpy(ys, &y.raw, sizeof(T));
  const Floats halves[2] = {half_power<T>(mantissas[0], exponents[0], ys[0]),
                            half_power<T>(mantissas[1], exponents[1], ys[1])};
  Value<T> result;
  std::memcpy(&result.raw, halves, sizeof(T));
  return result;
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

}  // namespace npu::pointwise
