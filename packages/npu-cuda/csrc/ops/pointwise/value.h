// Value<T>: the type that the expressions of pointwise ops are written over. T is a number (a thread of CUDA
// computes one), or a vector of numbers in the sense of GCC (the host computes 2 to 16 at once). A literal
// converts to the type of the numbers, exactly as the compiler would round it: `0.1 * x` is right in float32
// and in float64. Integers wrap around. Comparisons give a Mask, which `select` chooses by, and which is 1 or
// 0 where a value is wanted.
#pragma once

#include <cstdint>
#include <type_traits>

#if defined(__x86_64__) && !defined(__clang__) && !defined(__CUDACC__)
#define NPU_HAS_X86_BUILTINS 1
#include <immintrin.h>  // declares the builtins
#else
#define NPU_HAS_X86_BUILTINS 0
#endif

#if defined(__CUDACC__)
#define NPU_INLINE __host__ __device__ __forceinline__
#else
#define NPU_INLINE inline __attribute__((always_inline))
#endif

namespace npu::pointwise {

// The type of one number.
template <class T>
struct LaneOf {
  using type = std::remove_cvref_t<decltype(T{}[0])>;
};
template <>
struct LaneOf<float> {
  using type = float;
};
template <>
struct LaneOf<double> {
  using type = double;
};
template <>
struct LaneOf<int64_t> {
  using type = int64_t;
};

template <class T>
inline constexpr bool kIsVector = !std::is_arithmetic_v<T>;

// A number of an attribute or a literal; what an integer cannot hold becomes the nearest one that it can.
template <class Lane>
NPU_INLINE constexpr Lane number(double x) {
  if constexpr (std::is_integral_v<Lane>) {
    constexpr double limit = 9223372036854775808.0;
    if (x >= limit) return INT64_MAX;
    if (x <= -limit || x != x) return INT64_MIN;
  }
  return static_cast<Lane>(x);
}

// An attribute in each lane. GCC 12 moves calls out of loops, but vectors of 32 bytes that it makes by itself only where
// a register is left.
template <class T>
NPU_INLINE T all_lanes(typename LaneOf<T>::type x) {
#if NPU_HAS_X86_BUILTINS
  if constexpr (kIsVector<T> && std::is_same_v<typename LaneOf<T>::type, float> && sizeof(T) == 32) {
    typedef float Four [[gnu::vector_size(16)]];
    if (!__builtin_constant_p(x)) return __builtin_ia32_vbroadcastss_ps256(Four{x});
  }
#endif
  return x - T{};  // x - 0 is x, also of -0.0
}

template <class T>
struct Value;

template <class T>
struct Mask {
  using Truth = decltype(T{} < T{});  // bool, or a vector of 0 and -1
  Truth truth;

  // Sums, since GCC 12 computes `&` and `|` of comparisons of 64 bytes number by number.
  friend NPU_INLINE Mask operator&&(Mask a, Mask b) {
    if constexpr (kIsVector<T>) return {(a.truth + b.truth) < -1};
    else return {a.truth && b.truth};
  }
  friend NPU_INLINE Mask operator||(Mask a, Mask b) {
    if constexpr (kIsVector<T>) return {(a.truth + b.truth) < 0};
    else return {a.truth || b.truth};
  }
  friend NPU_INLINE Mask operator!=(Mask a, Mask b) { return {a.truth != b.truth}; }
  friend NPU_INLINE Mask operator!(Mask a) { return {a.truth == Truth{}}; }
};

template <class T>
struct Value {
  using Lane = typename LaneOf<T>::type;
  T raw;

  Value() = default;
  NPU_INLINE Value(double x) : raw(all_lanes<T>(number<Lane>(x))) {}
  // Of memory, most often: an instruction reads it into all lanes.
  template <class F>
    requires std::is_same_v<F, float>
  NPU_INLINE Value(F x) : raw(number<Lane>(x) - T{}) {}
  NPU_INLINE Value(Mask<T> mask) : Value(select(mask, Value(1), Value(0))) {}
  NPU_INLINE static Value of(T raw) {
    Value value;
    value.raw = raw;
    return value;
  }

  friend NPU_INLINE Value operator+(Value a, Value b) { return of(T(bits(a) + bits(b))); }
  friend NPU_INLINE Value operator-(Value a, Value b) { return of(T(bits(a) - bits(b))); }
  friend NPU_INLINE Value operator*(Value a, Value b) { return of(T(bits(a) * bits(b))); }
  friend NPU_INLINE Value operator-(Value a) {
    if constexpr (std::is_integral_v<Lane>) return Value(0) - a;
    else return of(-a.raw);
  }
  // Integers: towards zero, and 0 where the divisor is 0.
  friend NPU_INLINE Value operator/(Value a, Value b) {
    if constexpr (std::is_integral_v<Lane>) {
      const Mask<T> is_special = b == 0 || b == -1;  // the processor has no answer for x / 0 and min / -1
      const Value quotient = of(a.raw / select(is_special, Value(1), b).raw);
      return select(is_special, b * quotient, quotient);
    } else {
      return of(a.raw / b.raw);
    }
  }

  friend NPU_INLINE Mask<T> operator<(Value a, Value b) { return {a.raw < b.raw}; }
  friend NPU_INLINE Mask<T> operator<=(Value a, Value b) { return {a.raw <= b.raw}; }
  friend NPU_INLINE Mask<T> operator>(Value a, Value b) { return {a.raw > b.raw}; }
  friend NPU_INLINE Mask<T> operator>=(Value a, Value b) { return {a.raw >= b.raw}; }
  friend NPU_INLINE Mask<T> operator==(Value a, Value b) { return {a.raw == b.raw}; }
  friend NPU_INLINE Mask<T> operator!=(Value a, Value b) { return {a.raw != b.raw}; }
  friend NPU_INLINE Value operator&(Value a, Value b) { return of(a.raw & b.raw); }
  friend NPU_INLINE Value operator|(Value a, Value b) { return of(a.raw | b.raw); }
  friend NPU_INLINE Value operator^(Value a, Value b) { return of(a.raw ^ b.raw); }
  friend NPU_INLINE Value operator~(Value a) { return of(~a.raw); }

  friend NPU_INLINE Value select(Mask<T> mask, Value yes, Value no) {
    return of(mask.truth ? yes.raw : no.raw);
  }
  // a * b + c, rounded once where the processor can.
  friend NPU_INLINE Value fma(Value a, Value b, Value c) { return fused(a, b, c); }
  // NaN where one of them is; the sign of a zero is not defined.
  friend NPU_INLINE Value maximum(Value a, Value b) { return larger(a, b); }
  friend NPU_INLINE Value minimum(Value a, Value b) { return smaller(a, b); }
  friend NPU_INLINE Value pow(Value a, Value b) { return power(a, b); }
  friend NPU_INLINE Value fmod(Value a, Value b) { return truncated_remainder(a, b); }

 private:
  // Signed integers must not overflow, so that they are added as unsigned ones.
  static NPU_INLINE auto bits(Value a) {
    if constexpr (std::is_same_v<T, int64_t>) return static_cast<uint64_t>(a.raw);
    else return a.raw;
  }
};

}  // namespace npu::pointwise
