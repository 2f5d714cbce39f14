// Numbers of every dtype, on every device. It is included after the types of the 16-bit floats with their `widen` and
// `narrow`: by host_numbers.h and cuda_numbers.cuh.
#pragma once

#include <cstring>

#include "ops/index/maps.h"
#include "ops/pointwise/elements.h"

namespace npu::indexing {

using pointwise::Bool;

// Calls f with a number of a dtype.
template <class Half, class BFloat16, class F>
auto with_number_of(DType dtype, F f) {
  using pointwise::Element;
  switch (pointwise::element_of(dtype)) {
    case Element::Float32: return f(float{});
    case Element::Float16: return f(Half{});
    case Element::BFloat16: return f(BFloat16{});
    case Element::Float64: return f(double{});
    case Element::Int64: return f(int64_t{});
    case Element::Int32: return f(int32_t{});
    case Element::Int16: return f(int16_t{});
    case Element::Int8: return f(int8_t{});
    case Element::UInt8: return f(uint8_t{});
    default: return f(Bool{});
  }
}

// Rounded after each addition, as PyTorch does on the CPU.
template <class T>
NPU_BOTH inline T sum_of(T a, T b) {
  if constexpr (std::is_same_v<T, Bool>) return {static_cast<uint8_t>((a.byte | b.byte) != 0)};
  else if constexpr (std::is_floating_point_v<T>) return a + b;
  else if constexpr (std::is_integral_v<T>) return static_cast<T>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
  else return narrow<T>(widen(a) + widen(b));
}

// The bits of a float as an unsigned integer of the same order: -0 equals 0, and NaN is the largest.
template <class Bits, class Float>
NPU_BOTH inline Bits key_of_float(Float x, Bits infinity) {
  constexpr Bits sign = Bits{1} << (8 * sizeof(Bits) - 1);
  Bits bits;
  std::memcpy(&bits, &x, sizeof(bits));
  if ((bits & ~sign) > infinity) return ~Bits{0};
  if (bits == sign) bits = 0;
  return bits & sign ? ~bits : bits | sign;
}

// Returns the key of any number: 64 bits for what has 8 bytes, else 32.
template <class T>
NPU_BOTH inline auto key_of(T x) {
  if constexpr (std::is_same_v<T, double>) return key_of_float(x, uint64_t{0x7ff} << 52);
  else if constexpr (std::is_same_v<T, int64_t>) return static_cast<uint64_t>(x) ^ uint64_t{1} << 63;
  else if constexpr (std::is_same_v<T, Bool>) return uint32_t{x.byte != 0};
  else if constexpr (std::is_integral_v<T>) return static_cast<uint32_t>(int32_t{x}) ^ 0x80000000u;
  else return key_of_float(static_cast<float>(widen(x)), 0x7f800000u);
}

}  // namespace npu::indexing
