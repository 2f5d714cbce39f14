// Numbers as unsigned integers of the same order: -0 equals 0, and NaN is the largest.
#pragma once

#include <bit>
#include <cstdint>

#include "ops/index/maps.h"

namespace npu::indexing {

NPU_BOTH inline uint32_t key_of_bits(uint32_t bits) {
  if ((bits & 0x7fffffffu) > 0x7f800000u) return 0xffffffffu;
  if (bits == 0x80000000u) bits = 0;
  return bits >> 31 ? ~bits : bits | 0x80000000u;
}

NPU_BOTH inline uint64_t key_of_bits(uint64_t bits) {
  constexpr uint64_t kSign = uint64_t{1} << 63, kInfinity = uint64_t{0x7ff} << 52;
  if ((bits & ~kSign) > kInfinity) return ~uint64_t{0};
  if (bits == kSign) bits = 0;
  return bits & kSign ? ~bits : bits | kSign;
}

}  // namespace npu::indexing
