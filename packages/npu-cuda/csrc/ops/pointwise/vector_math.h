// The functions of expressions over vectors. Those of floats are polynomials within a few units in the last
// place; of doubles and integers they are computed number by number. The polynomials of log, sin, cos and erf
// near 0 follow Norbert Juffa's published single-precision functions, the others are minimax fits.
#pragma once

#include <limits>

#include "ops/pointwise/vector_instructions.h"

namespace npu::pointwise {

// Applies a function to each number. It stays a loop over an array, which the compiler turns into vector
// instructions where it has one for the function.
template <Vector T, class F, class... More>
NPU_INLINE Value<T> each(F function, Value<T> x, More... more) {
  using Lane = typename LaneOf<T>::type;
  Lane lanes[sizeof...(More) + 1][kLanes<T>];
  int row = 0;
  (std::memcpy(lanes[row++], &x.raw, sizeof(T)), ..., std::memcpy(lanes[row++], &more.raw, sizeof(T)));
  for (int i = 0; i < kLanes<T>; ++i) {
    if constexpr (sizeof...(More) == 0) lanes[0][i] = function(lanes[0][i]);
    else lanes[0][i] = function(lanes[0][i], lanes[1][i]);
  }
  std::memcpy(&x.raw, lanes[0], sizeof(T));
  return x;
}

template <Vector T>
NPU_INLINE Value<T> sqrt(Value<T> x) { return each([](auto lane) { return std::sqrt(lane); }, x); }
template <Vector T>
NPU_INLINE Value<T> floor(Value<T> x) { return each([](auto lane) { return std::floor(lane); }, x); }
template <Vector T>
NPU_INLINE Value<T> ceil(Value<T> x) { return each([](auto lane) { return std::ceil(lane); }, x); }
template <Vector T>
NPU_INLINE Value<T> trunc(Value<T> x) { return each([](auto lane) { return std::trunc(lane); }, x); }
template <Vector T>
NPU_INLINE Value<T> round(Value<T> x) { return each([](auto lane) { return std::nearbyint(lane); }, x); }

template <Vector T>
NPU_INLINE Value<T> fused(Value<T> a, Value<T> b, Value<T> c) { return Value<T>::of(a.raw * b.raw + c.raw); }

template <OtherVector T>
NPU_INLINE Value<T> power(Value<T> x, Value<T> y) {
  using Lane = typename LaneOf<T>::type;
  return each([](Lane a, Lane b) { return pow(Value<Lane>::of(a), Value<Lane>::of(b)).raw; }, x, y);
}

template <OtherVector T>
NPU_INLINE Value<T> truncated_remainder(Value<T> x, Value<T> y) {
  if constexpr (std::is_integral_v<typename LaneOf<T>::type>) return x - y * (x / y);
  else return each([](auto a, auto b) { return std::fmod(a, b); }, x, y);
}

template <OtherVector T>
NPU_INLINE Value<T> exp(Value<T> x) { return each([](auto lane) { return std::exp(lane); }, x); }
template <OtherVector T>
NPU_INLINE Value<T> expm1(Value<T> x) { return each([](auto lane) { return std::expm1(lane); }, x); }
template <OtherVector T>
NPU_INLINE Value<T> log(Value<T> x) { return each([](auto lane) { return std::log(lane); }, x); }
template <OtherVector T>
NPU_INLINE Value<T> log1p(Value<T> x) { return each([](auto lane) { return std::log1p(lane); }, x); }
template <OtherVector T>
NPU_INLINE Value<T> sin(Value<T> x) { return each([](auto lane) { return std::sin(lane); }, x); }
template <OtherVector T>
NPU_INLINE Value<T> cos(Value<T> x) { return each([](auto lane) { return std::cos(lane); }, x); }
template <OtherVector T>
NPU_INLINE Value<T> tanh(Value<T> x) { return each([](auto lane) { return std::tanh(lane); }, x); }
template <OtherVector T>
NPU_INLINE Value<T> erf(Value<T> x) { return each([](auto lane) { return std::erf(lane); }, x); }

// ---- floats ----

// c0 + c1 x + c2 x^2 + ...
template <FloatVector T, class... More>
NPU_INLINE Value<T> polynomial(Value<T> x, double c0, More... more) {
  if constexpr (sizeof...(More) == 0) return c0;
  else return fma(polynomial(x, more...), x, c0);
}

// 1.5 * 2^23: adding it leaves no fraction, and the integer in the last bits.
inline constexpr double kRounding = 12582912.0;
inline constexpr double kLog2E = 1.4426950408889634;
inline constexpr double kLn2 = 0.69314718055994531;
inline constexpr double kLn2High = 0.693359375, kLn2Low = -2.12194440e-4;  // products of the former are exact

// (e^x - 1 - x) / x^2 of |x| <= ln 2 / 2
template <FloatVector T>
NPU_INLINE Value<T> exp_tail(Value<T> x) {
  return polynomial(x, 0.4999999814938929, 0.16666543420969185, 0.041667200795429196, 0.008366547446386745,
                    0.0013882510716475437);
}

template <FloatVector T>
NPU_INLINE Value<T> exp(Value<T> x) {
  const Value<T> bounded = at_least(at_most(x, Value<T>(89.0)), Value<T>(-104.0));
  const Value<T> n = fma(bounded, kLog2E, kRounding) - kRounding;
  const Value<T> rest = fma(n, -kLn2Low, fma(n, -kLn2High, bounded));
  return scaled(fma(fma(exp_tail(rest), rest, 1.0), rest, 1.0), n);
}

// x is n ln 2 + rest, for x from -87 to 88; power is 2^n.
template <FloatVector T>
struct Exponent {
  NPU_INLINE explicit Exponent(Value<T> x) {
    const Value<T> shifted = fma(x, kLog2E, kRounding), n = shifted - kRounding;
    rest = fma(n, -kLn2Low, fma(n, -kLn2High, x));
    power = from_bits<T>((to_bits(shifted) << 23) + 0x3f800000);
  }

  Value<T> rest, power;
};

// e^x for x up to 0. What would be no normal number is 0.
template <FloatVector T>
NPU_INLINE Value<T> exp_of_negative(Value<T> x) {
  const Exponent<T> of(at_least(x, Value<T>(-87.0)));
  return select(x < -87.0, Value<T>(0.0), fma(fma(exp_tail(of.rest), of.rest, 1.0), of.rest, 1.0) * of.power);
}

// 2^x for x from -200 to 0.
template <FloatVector T>
NPU_INLINE Value<T> exp2_of_negative(Value<T> x) {
  const Value<T> n = (x + kRounding) - kRounding;
  const Value<T> power = polynomial(x - n, 1.0, 0.6931472057670719, 0.24022646885924367, 0.055503287119148446,
                                    0.009618489261220222, 0.0013399957592019627, 0.000153457844509542);
  return scaled(power, n);
}

template <FloatVector T>
NPU_INLINE Value<T> expm1(Value<T> x) {
  const Exponent<T> of(at_least(x, Value<T>(-30.0)));
  const Value<T> result = fma(fma(exp_tail(of.rest) * of.rest, of.rest, of.rest), of.power, of.power - 1.0);
  const Mask<T> is_large = x > 88.0;
  const Value<T> all = any(is_large) ? select(is_large, exp(x), result) : result;
  return with_sign_of(all, x);  // of -0.0
}

// By e^2x - 1 of x < 0, where the divisor has more digits: 2x is n ln 2 + 2 rest.
template <FloatVector T>
NPU_INLINE Value<T> tanh(Value<T> x) {
  const Value<T> bounded = at_least(from_bits<T>(to_bits(x) | ~0x7fffffff), Value<T>(-10.0));
  const Value<T> shifted = fma(bounded, 2 * kLog2E, kRounding), n = shifted - kRounding;
  const Value<T> rest = fma(n, -kLn2 / 2, bounded);  // what a float leaves of ln 2 is too small for n <= 29
  const Value<T> tail = polynomial(rest, 2 * 0.4999999814938929, 4 * 0.16666543420969185,
                                   8 * 0.041667200795429196, 16 * 0.008366547446386745,
                                   32 * 0.0013882510716475437);  // 2 exp_tail(2 rest)
  const Value<T> half_power = from_bits<T>((to_bits(shifted) << 23) + 0x3f000000);  // 2^n / 2
  const Value<T> half = fma(fma(tail * rest, rest, rest), half_power + half_power, half_power - 0.5);
  return with_sign_of(half / (half + 1.0), x);
}

// Minus the exponent of a positive number, in the place of the exponent: what is left of the number is from
// 2/3 to 4/3. The other sign would make log1p(-0.0) positive.
template <FloatVector T>
NPU_INLINE IntsOf<T> negative_exponent(Value<T> x) {
  return (0x3f2aaaab + 0x7fffff - to_bits(x)) & ~0x7fffff;
}

// log((1 + x) / 2^n) of x from -1/3 to 1/3.
template <FloatVector T>
NPU_INLINE Value<T> log1p_less(Value<T> x, IntsOf<T> n) {
  const Value<T> squared = x * x;
  const Value<T> even = polynomial(squared, -0.249996200, -0.166846052, -0.121483363, -0.130310059);
  const Value<T> odd = polynomial(squared, 0.200120345, 0.139814854, 0.140869141);
  const Value<T> inner = fma(fma(fma(odd, x, even), x, 0.333331972), x, -0.5);
  return fma(to_floats<T>(n), -0.693147182 / 8388608, fma(inner, squared, x));
}

// True for what is not a positive normal number below 2^100.
template <FloatVector T>
NPU_INLINE Mask<T> is_special(Value<T> x) {
  constexpr uint32_t smallest = 0x00800000, limit = (127 + 100) << 23;
  return {(to_unsigned(x) - smallest) >= limit - smallest};
}

template <FloatVector T>
NPU_INLINE Value<T> log_of_normal(Value<T> x, IntsOf<T> scale) {
  const IntsOf<T> n = negative_exponent(x);
  return log1p_less(from_bits<T>(to_bits(x) + n) - 1.0, n + scale);
}

template <FloatVector T>
NPU_INLINE Value<T> log(Value<T> x) {
  if (!any(is_special(x))) return log_of_normal(x, IntsOf<T>{});
  const Mask<T> is_subnormal = x < 1.17549435e-38;
  const Value<T> normal = select(is_subnormal, x * 8388608.0, x);
  Value<T> result = log_of_normal(normal, is_subnormal.truth & (23 << 23));
  constexpr float infinity = std::numeric_limits<float>::infinity();
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  result = select(x < infinity, result, x);  // infinity and NaN
  return select(x > 0.0, result, select(x == 0.0, Value<T>(-infinity), select(x < 0.0, Value<T>(nan), x)));
}

template <FloatVector T>
NPU_INLINE Value<T> log1p(Value<T> x) {
  const Value<T> sum = 1.0 + x;
  const IntsOf<T> n = negative_exponent(sum);
  const Value<T> scale = from_bits<T>(n + 0x3f800000);
  const Value<T> result = log1p_less(x * scale - (1.0 - scale), n);
  const Mask<T> special = is_special(sum);
  return any(special) ? select(special, log(sum), result) : result;
}

template <FloatVector T>
NPU_INLINE Value<T> erf(Value<T> x) {
  const Value<T> size = abs(x), bounded = at_most(size, Value<T>(4.0));  // erf(4) is 1
  const Value<T> exponent =
      polynomial(bounded, -1.6281020723774793, -0.917147659762535, -0.15186074082320472, 0.03302323919676111,
                 -0.004638200998480613, 0.00030871509257693254) *
      bounded;
  const Value<T> large = with_sign_of(1.0 - exp2_of_negative(exponent), x);
  const Value<T> near = polynomial(x * x, 1.28379166e-1, -3.76125336e-1, 1.12819925e-1, -2.67681349e-2,
                                   4.99119423e-3, -5.96761703e-4);
  return select(size > 0.927734375, large, fma(near, x, x));
}

// The probability that a normal number is less than x: within 1e-7, and relative to the result within 1e-4
// for negative numbers down to -4.
template <FloatVector T>
NPU_INLINE Value<T> normal_probability(Value<T> x) {
  const Value<T> size = abs(x);
  const Value<T> exponent = polynomial(size, -1.0, -1.1511065546122807, -0.4591927234704058,
                                       -0.052553319814680276, 0.007159042874954436,
                                       -0.00021900876394020144, -0.00014894513660787314,
                                       3.093496574287126e-05, -2.0855028238406437e-06);
  const Value<T> beyond = exp2_of_negative(at_least(exponent, Value<T>(-200.0)));
  return select(x < 0.0, beyond, 1.0 - beyond);
}

// sin(x + quarters pi / 2) for |x| <= kMostReduced.
template <FloatVector T>
NPU_INLINE Value<T> sine(Value<T> x, int quarters) {
  const Value<T> shifted = fma(x, 0.636619772, kRounding), n = shifted - kRounding;
  const Value<T> rest = fma(n, -7.54978995489188e-8, fma(n, -4.837512969970703125e-4, fma(n, -1.5703125, x)));
  const IntsOf<T> quadrant = to_bits(shifted) + quarters;
  const Value<T> squared = rest * rest;
  const Value<T> sine_tail =
      polynomial(squared, -1.66666672e-1, 8.33338592e-3, -1.98559923e-4, 2.86567956e-6);
  const Value<T> cosine_tail = polynomial(squared, -0.5, 4.16666567e-2, -1.38877297e-3, 2.44677067e-5);
  const Value<T> of_sine = fma(sine_tail * squared, rest, rest);
  const Value<T> of_cosine = fma(cosine_tail, squared, 1.0);
  const Value<T> size = select(Mask<T>{(quadrant & 1) != 0}, of_cosine, of_sine);
  return from_bits<T>(to_bits(size) ^ ((quadrant << 30) & ~0x7fffffff));
}

// Beyond it `sine` has lost digits, and the library is asked.
inline constexpr double kMostReduced = 8192.0;

template <FloatVector T>
NPU_INLINE Value<T> sin(Value<T> x) {
  const Value<T> small = sine(x, 0);
  // Also zeros, whose sign `sine` loses.
  const Mask<T> is_special{(to_unsigned(abs(x)) - 1) >= std::bit_cast<uint32_t>(float(kMostReduced))};
  if (!any(is_special)) return small;
  const Mask<T> is_large = !(abs(x) <= kMostReduced);
  if (!any(is_large)) return select(is_special, x, small);
  return select(is_special, each([](float lane) { return std::sin(lane); }, x), small);
}
template <FloatVector T>
NPU_INLINE Value<T> cos(Value<T> x) {
  const Mask<T> is_large = !(abs(x) <= kMostReduced);
  const Value<T> small = sine(x, 1);
  if (!any(is_large)) return small;
  return select(is_large, each([](float lane) { return std::cos(lane); }, x), small);
}

}  // namespace npu::pointwise
