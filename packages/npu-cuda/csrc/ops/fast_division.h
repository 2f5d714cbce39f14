// FastDivision: of indices on the device, which has no instruction for it.
#pragma once

#include "cuda/launch.h"

namespace npu {

// n / d and n % d for n < 2^31 by one multiplication: Granlund and Montgomery, "Division by invariant
// integers".
struct FastDivision {
  uint32_t divisor = 1, multiplier = 1, shift = 0;

  FastDivision() = default;
  explicit FastDivision(uint32_t by) : divisor(by) {
    while (shift < 32 && (uint64_t{1} << shift) < by) ++shift;
    multiplier = static_cast<uint32_t>(((uint64_t{1} << 32) * ((uint64_t{1} << shift) - by)) / by + 1);
  }
  __device__ void operator()(uint32_t n, uint32_t* quotient, uint32_t* rest) const {
    *quotient = (__umulhi(n, multiplier) + n) >> shift;
    *rest = n - *quotient * divisor;
  }
};

}  // namespace npu
