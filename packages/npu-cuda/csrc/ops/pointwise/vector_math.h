// The functions of expressions over vectors. Those of floats are polynomials within a few units in the last
// place; of doubles and integers they are computed number by number. The polynomials of erf, sin and cos
// follow Norbert Juffa's published single-precision functions, log and tanh follow Cephes.
#pragma once

#include <bit>
#include <cstring>
#include <limits>

#include "ops/pointwise/math.h"

namespace npu::pointwise {

template <class T>
concept Vector = kIsVector<T>;
template <class T>
concept FloatVector = Vector<T> && std::is_same_v<typename LaneOf<T>::type, float>;
template <class T>
concept OtherVector = Vector<T> && !FloatVector<T>;

template <Vector T>
inline constexpr int kLanes = sizeof(T) / sizeof(typename LaneOf<T>::type);

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
NPU_INLINE bool any(Mask<T> mask) {
  bool found = false;
  for (int i = 0; i < kLanes<T>; ++i) found |= mask.truth[i] != 0;
  return found;
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

template <Vector T>
NPU_INLINE Value<T> power(Value<T> x, Value<T> y) {
  using Lane = typename LaneOf<T>::type;
  return each([](Lane a, Lane b) { return pow(Value<Lane>::of(a), Value<Lane>::of(b)).raw; }, x, y);
}

template <Vector T>
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

// The bits of floats as integers, and back.
template <FloatVector T>
using IntsOf = typename Mask<T>::Truth;
template <FloatVector T>
NPU_INLINE IntsOf<T> to_bits(Value<T> x) { return std::bit_cast<IntsOf<T>>(x.raw); }
template <FloatVector T>
NPU_INLINE Value<T> from_bits(IntsOf<T> bits) { return Value<T>::of(std::bit_cast<T>(bits)); }

template <FloatVector T>
NPU_INLINE Value<T> with_sign_of(Value<T> size, Value<T> signed_value) {
  return from_bits<T>((to_bits(size) & 0x7fffffff) | (to_bits(signed_value) & ~0x7fffffff));
}

// c0 + c1 x + c2 x^2 + ...
template <FloatVector T, class... More>
NPU_INLINE Value<T> polynomial(Value<T> x, double c0, More... more) {
  if constexpr (sizeof...(More) == 0) return c0;
  else return fma(polynomial(x, more...), x, c0);
}

template <FloatVector T>
NPU_INLINE Value<T> two_to(IntsOf<T> n) { return from_bits<T>((n + 127) << 23); }

// x = n ln 2 + rest, n an integer and |rest| <= ln 2 / 2.
template <FloatVector T>
struct Reduced {
  IntsOf<T> n;
  Value<T> whole, rest;  // n as a float
};

template <FloatVector T>
NPU_INLINE Reduced<T> reduced_by_ln2(Value<T> x) {
  const double kRounding = 12582912.0;  // 1.5 * 2^23: adding it leaves no fraction
  const Value<T> n = fma(x, 1.4426950408889634, kRounding) - kRounding;
  const Value<T> rest = fma(n, 2.12194440e-4, fma(n, -0.693359375, x));  // the first product is exact
  return {__builtin_convertvector(n.raw, IntsOf<T>), n, rest};
}

// (e^x - 1 - x) / x^2 of |x| <= ln 2 / 2
template <FloatVector T>
NPU_INLINE Value<T> exp_tail(Value<T> x) {
  return polynomial(x, 1.0 / 2, 1.0 / 6, 1.0 / 24, 1.0 / 120, 1.0 / 720, 1.0 / 5040);
}

template <FloatVector T>
NPU_INLINE Value<T> exp(Value<T> x) {
  const Value<T> bounded = select(x > 89.0, Value<T>(89.0), select(x < -104.0, Value<T>(-104.0), x));
  const auto [n, whole, rest] = reduced_by_ln2(bounded);
  const Value<T> power = fma(exp_tail(rest) * rest, rest, rest) + 1.0;
  const IntsOf<T> half = n >> 1;  // in two factors: 2^n alone may be too large, or subnormal
  return power * two_to<T>(half) * two_to<T>(n - half);
}

template <FloatVector T>
NPU_INLINE Value<T> expm1(Value<T> x) {
  const Value<T> bounded = select(x > 88.0, Value<T>(88.0), select(x < -30.0, Value<T>(-30.0), x));
  const auto [n, whole, rest] = reduced_by_ln2(bounded);
  const Value<T> power = fma(exp_tail(rest) * rest, rest, rest);
  const Value<T> scale = two_to<T>(n);
  const Value<T> result = select(whole == 0.0, power, fma(scale, power, scale - 1.0));
  return select(x > 88.0, exp(x), select(x == 0.0, x, result));
}

template <FloatVector T>
NPU_INLINE Value<T> log(Value<T> x) {
  const Mask<T> is_subnormal = x < 1.17549435e-38;
  const Value<T> normal = select(is_subnormal, x * 8388608.0, x);
  const IntsOf<T> bits = to_bits(normal), offset = bits - 0x3f3504f3;  // the bits of sqrt(1/2)
  const Value<T> mantissa = from_bits<T>((offset & 0x7fffff) + 0x3f3504f3) - 1.0;
  const Value<T> exponent =
      Value<T>::of(__builtin_convertvector(offset >> 23, T)) - select(is_subnormal, Value<T>(23), Value<T>(0));
  const Value<T> squared = mantissa * mantissa;
  Value<T> result =
      polynomial(mantissa, 3.3333331174e-1, -2.4999993993e-1, 2.0000714765e-1, -1.6668057665e-1, 1.4249322787e-1,
                 -1.2420140846e-1, 1.1676998740e-1, -1.1514610310e-1, 7.0376836292e-2) * mantissa * squared;
  result = fma(exponent, -2.12194440e-4, result) - 0.5 * squared;
  result = fma(exponent, 0.693359375, mantissa + result);
  constexpr float infinity = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  result = select(x < infinity, result, x);  // infinity and NaN
  return select(x > 0.0, result, select(x == 0.0, Value<T>(-infinity), select(x < 0.0, Value<T>(nan), x)));
}

template <FloatVector T>
NPU_INLINE Value<T> log1p(Value<T> x) {
  const Value<T> sum = 1.0 + x;
  const Value<T> lost = x - (sum - 1.0);
  const Value<T> result = log(sum) + lost / sum;
  return select(sum == x || sum <= 0.0, log(sum), select(x == 0.0, x, result));
}

template <FloatVector T>
NPU_INLINE Value<T> tanh(Value<T> x) {
  const Value<T> size = abs(x), squared = x * x;
  const Value<T> tail = polynomial(squared, -3.33332819422e-1, 1.33314422036e-1, -5.37397155531e-2,
                                   2.06390887954e-2, -5.70498872745e-3);
  const Value<T> small = fma(tail * squared, x, x);
  const Value<T> large = with_sign_of(1.0 - 2.0 / (exp(size + size) + 1.0), x);
  return select(size < 0.625, small, large);
}

template <FloatVector T>
NPU_INLINE Value<T> erf(Value<T> x) {
  const Value<T> size = abs(x);
  const Value<T> bounded = select(size > 4.0, Value<T>(4.0), size);  // erf(4) is 1
  const Value<T> far = polynomial(bounded, -1.28717512e-1, -6.34846687e-1, -1.06777877e-1, 2.42546219e-2,
                                  -3.88396438e-3, 3.83197126e-4, -1.72853470e-5);
  const Value<T> near = polynomial(x * x, 1.28379166e-1, -3.76125336e-1, 1.12819925e-1, -2.67681349e-2,
                                   4.99119423e-3, -5.96761703e-4);
  const Value<T> large = with_sign_of(1.0 - exp(fma(far, bounded, -bounded)), x);
  return select(size > 0.927734375, large, fma(near, x, x));
}

// sin(x + quarters pi / 2).
template <FloatVector T>
NPU_INLINE Value<T> sine(Value<T> x, int quarters) {
  const double kRounding = 12582912.0;
  const Value<T> n = fma(x, 0.636619772, kRounding) - kRounding;
  const Value<T> rest = fma(n, -7.54978995489188e-8, fma(n, -4.837512969970703125e-4, fma(n, -1.5703125, x)));
  const IntsOf<T> quadrant = __builtin_convertvector(n.raw, IntsOf<T>) + quarters;
  const Value<T> squared = rest * rest;
  const Value<T> sine_tail = polynomial(squared, -1.66666672e-1, 8.33338592e-3, -1.98559923e-4, 2.86567956e-6);
  const Value<T> cosine_tail = polynomial(squared, -0.5, 4.16666567e-2, -1.38877297e-3, 2.44677067e-5);
  const Value<T> of_sine = fma(sine_tail * squared, rest, rest);
  const Value<T> of_cosine = fma(cosine_tail, squared, 1.0);
  const Value<T> size = select(Mask<T>{(quadrant & 1) != 0}, of_cosine, of_sine);
  return from_bits<T>(to_bits(size) ^ ((quadrant & 2) << 30));
}

// Beyond it `sine` has lost digits, and the library is asked.
inline constexpr double kMostReduced = 8192.0;

template <FloatVector T>
NPU_INLINE Value<T> sin(Value<T> x) {
  const Mask<T> is_large = !(abs(x) <= kMostReduced);
  const Value<T> small = select(x == 0.0, x, sine(x, 0));
  if (!any(is_large)) return small;
  return select(is_large, each([](float lane) { return std::sin(lane); }, x), small);
}
template <FloatVector T>
NPU_INLINE Value<T> cos(Value<T> x) {
  const Mask<T> is_large = !(abs(x) <= kMostReduced);
  const Value<T> small = sine(x, 1);
  if (!any(is_large)) return small;
  return select(is_large, each([](float lane) { return std::cos(lane); }, x), small);
}

}  // namespace npu::pointwise
