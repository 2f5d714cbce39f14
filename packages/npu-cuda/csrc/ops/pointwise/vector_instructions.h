// Vectors of floats and their bits, and what processors have instructions for that the compiler does not find
// by itself. GCC takes the builtins of a processor in functions for any, as long as they become code of one
// for that processor, as those marked NPU_INLINE do.
#pragma once

#include <bit>
#include <cstring>

#include "ops/pointwise/math.h"

namespace npu::pointwise {

#if NPU_HAS_X86_BUILTINS
inline constexpr uint16_t kAllLanes = 0xffff;
inline constexpr int kRoundAsSet = _MM_FROUND_CUR_DIRECTION;
#endif

template <class T>
concept Vector = kIsVector<T>;
template <class T>
concept FloatVector = Vector<T> && std::is_same_v<typename LaneOf<T>::type, float>;
template <class T>
concept OtherVector = Vector<T> && !FloatVector<T>;

template <Vector T>
inline constexpr int kLanes = sizeof(T) / sizeof(typename LaneOf<T>::type);

template <class Lane, int kBytes>
struct VectorOf {
  using type [[gnu::vector_size(kBytes)]] = Lane;
  using unaligned [[gnu::vector_size(kBytes), gnu::aligned(sizeof(Lane)), gnu::may_alias]] = Lane;
};

// The bits of floats as integers, and back.
template <FloatVector T>
using IntsOf = typename Mask<T>::Truth;
template <FloatVector T>
using UnsignedOf = typename VectorOf<uint32_t, sizeof(T)>::type;
template <FloatVector T>
NPU_INLINE IntsOf<T> to_bits(Value<T> x) { return std::bit_cast<IntsOf<T>>(x.raw); }
template <FloatVector T>
NPU_INLINE UnsignedOf<T> to_unsigned(Value<T> x) { return std::bit_cast<UnsignedOf<T>>(x.raw); }
template <FloatVector T>
NPU_INLINE Value<T> from_bits(IntsOf<T> bits) { return Value<T>::of(std::bit_cast<T>(bits)); }
template <FloatVector T>
NPU_INLINE Value<T> to_floats(IntsOf<T> x) { return Value<T>::of(__builtin_convertvector(x, T)); }

template <FloatVector T>
NPU_INLINE Value<T> abs(Value<T> x) { return from_bits<T>(to_bits(x) & 0x7fffffff); }
template <FloatVector T>
NPU_INLINE Value<T> with_sign_of(Value<T> size, Value<T> signed_value) {
  constexpr int sign = ~0x7fffffff;
#if NPU_HAS_X86_BUILTINS
  if constexpr (sizeof(T) == 64) {
    constexpr int choose = 0xd8;  // the second where the third is 1, else the first
    const IntsOf<T> mask = IntsOf<T>{} + sign, from = to_bits(signed_value);
    return from_bits<T>(__builtin_ia32_pternlogd512_mask(to_bits(size), from, mask, choose, kAllLanes));
  }
#endif
  return from_bits<T>((to_bits(size) & ~sign) | (to_bits(signed_value) & sign));
}

template <FloatVector T>
NPU_INLINE bool any(Mask<T> mask) {
#if NPU_HAS_X86_BUILTINS
  const IntsOf<T> truth = mask.truth;
  if constexpr (sizeof(T) == 64) return __builtin_ia32_ptestmd512(truth, truth, kAllLanes) != 0;
  else if constexpr (sizeof(T) == 32) return __builtin_ia32_movmskps256(std::bit_cast<T>(truth)) != 0;
  else return __builtin_ia32_movmskps(std::bit_cast<T>(truth)) != 0;
#else
  bool found = false;
  for (int i = 0; i < kLanes<T>; ++i) found |= mask.truth[i] != 0;
  return found;
#endif
}

// Here and below: x where one of the two is NaN.
template <FloatVector T>
NPU_INLINE Value<T> at_most(Value<T> x, Value<T> bound) {
#if NPU_HAS_X86_BUILTINS
  if constexpr (sizeof(T) == 64) {
    return Value<T>::of(__builtin_ia32_minps512_mask(bound.raw, x.raw, x.raw, kAllLanes, kRoundAsSet));
  } else if constexpr (sizeof(T) == 32) {
    return Value<T>::of(__builtin_ia32_minps256(bound.raw, x.raw));
  } else {
    return Value<T>::of(__builtin_ia32_minps(bound.raw, x.raw));
  }
#else
  return select(x > bound, bound, x);
#endif
}

template <FloatVector T>
NPU_INLINE Value<T> at_least(Value<T> x, Value<T> bound) {
#if NPU_HAS_X86_BUILTINS
  if constexpr (sizeof(T) == 64) {
    return Value<T>::of(__builtin_ia32_maxps512_mask(bound.raw, x.raw, x.raw, kAllLanes, kRoundAsSet));
  } else if constexpr (sizeof(T) == 32) {
    return Value<T>::of(__builtin_ia32_maxps256(bound.raw, x.raw));
  } else {
    return Value<T>::of(__builtin_ia32_maxps(bound.raw, x.raw));
  }
#else
  return select(x < bound, bound, x);
#endif
}

// The builtins give b where one of the two is NaN.
template <FloatVector T>
NPU_INLINE Value<T> larger(Value<T> a, Value<T> b) { return select(a == a, at_least(b, a), a); }
template <FloatVector T>
NPU_INLINE Value<T> smaller(Value<T> a, Value<T> b) { return select(a == a, at_most(b, a), a); }

// 2^n of the integers from -126 to 127.
template <FloatVector T>
NPU_INLINE Value<T> two_to(IntsOf<T> n) { return from_bits<T>((n + 127) << 23); }

// x * 2^n for the integers n from -252 to 254, rounded once if x is about 1.
template <FloatVector T>
NPU_INLINE Value<T> scaled(Value<T> x, Value<T> n) {
#if NPU_HAS_X86_BUILTINS
  if constexpr (sizeof(T) == 64) {
    return Value<T>::of(__builtin_ia32_scalefps512_mask(x.raw, n.raw, x.raw, kAllLanes, kRoundAsSet));
  }
#endif
  const IntsOf<T> whole = __builtin_convertvector(n.raw, IntsOf<T>), half = whole >> 1;
  return x * two_to<T>(half) * two_to<T>(whole - half);  // 2^n alone may be too large, or subnormal
}

}  // namespace npu::pointwise
