// The 16-bit floats on the host, and how the element types of kernels relate to dtypes. Arithmetic is done in float:
// to_float is exact, from_float rounds to nearest, ties to even, and keeps NaN. Both are free of branches, so that
// loops over them vectorize.
#pragma once

#include <bit>
#include <cstdint>

#include "core/call.h"

namespace npu {

struct Half {
  uint16_t bits;
};
struct BFloat16 {
  uint16_t bits;
};

template <class T>
inline constexpr DType kDTypeOf{};
template <>
inline constexpr DType kDTypeOf<float> = kFloat32;
template <>
inline constexpr DType kDTypeOf<Half> = kFloat16;
template <>
inline constexpr DType kDTypeOf<BFloat16> = kBFloat16;

// Without a branch also where a compiler may not compute floats that are not needed.
inline uint32_t select(bool condition, uint32_t yes, uint32_t no) {
  const uint32_t mask = uint32_t{0} - uint32_t{condition};
  return (yes & mask) | (no & ~mask);
}

inline float to_float(float x) { return x; }
inline float to_float(BFloat16 x) { return std::bit_cast<float>(uint32_t{x.bits} << 16); }

inline float to_float(Half x) {
  constexpr uint32_t exponent_mask = 0x7c00u << 13;
  const uint32_t shifted = (x.bits & 0x7fffu) << 13;
  const uint32_t exponent = shifted & exponent_mask;
  const uint32_t normal = shifted + ((127u - 15u) << 23);
  // Of a subnormal number the hidden bit is not there: put it in, and let a subtraction take it out again.
  const float subnormal = std::bit_cast<float>(normal + (1u << 23)) - std::bit_cast<float>(113u << 23);
  const uint32_t finite = select(exponent == 0, std::bit_cast<uint32_t>(subnormal), normal);
  const uint32_t bits = select(exponent == exponent_mask, normal + ((128u - 16u) << 23), finite);
  return std::bit_cast<float>(bits | uint32_t{x.bits & 0x8000u} << 16);
}

template <class T>
T from_float(float x);

template <>
inline float from_float<float>(float x) {
  return x;
}

template <>
inline BFloat16 from_float<BFloat16>(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const uint32_t quiet_nan = (bits >> 16) | 0x40u;
  return {static_cast<uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? quiet_nan : rounded)};
}

template <>
inline Half from_float<Half>(float x) {
  constexpr uint32_t infinity = 0x7f800000u, overflow = (127u + 16u) << 23, smallest_normal = 113u << 23;
  constexpr uint32_t magic = ((127u - 15u) + (23u - 10u) + 1u) << 23;
  const uint32_t sign = std::bit_cast<uint32_t>(x) & 0x80000000u;
  const uint32_t size = std::bit_cast<uint32_t>(x) ^ sign;
  // An addition whose last bit is the last bit of a subnormal half rounds as the hardware does.
  const float aligned = std::bit_cast<float>(select(size < smallest_normal, size, 0u)) + std::bit_cast<float>(magic);
  const uint32_t subnormal = std::bit_cast<uint32_t>(aligned) - magic;
  const uint32_t normal = (size - ((127u - 15u) << 23) + 0xfffu + ((size >> 13) & 1u)) >> 13;
  const uint32_t finite = select(size < smallest_normal, subnormal, normal);
  const uint32_t special = select(size > infinity, 0x7e00u, 0x7c00u);
  return {static_cast<uint16_t>(select(size >= overflow, special, finite) | sign >> 16)};
}

}  // namespace npu
