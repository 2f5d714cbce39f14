// Random numbers by their place: Philox 4x32-10, for every device. Element i of a tensor, counted as if it were
// contiguous, gets the word i % 4 of the counter offset + i / 4, with the seed as key: neither threads nor strides change
// it. n elements use ceil(n / 4) counters, and whoever draws again adds as many to the offset.
//
// Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011, section 3.4.
#pragma once

#include "ops/pointwise/value.h"

namespace npu::pointwise {

struct RandomKey {
  uint64_t seed, offset;
};

// Sets `words` to the block of this counter.
NPU_INLINE void philox(uint64_t seed, uint64_t counter, uint32_t (&words)[4]) {
  constexpr uint64_t multiplier0 = 0xD2511F53, multiplier1 = 0xCD9E8D57;
  auto key0 = static_cast<uint32_t>(seed), key1 = static_cast<uint32_t>(seed >> 32);
  uint32_t x0 = static_cast<uint32_t>(counter), x1 = static_cast<uint32_t>(counter >> 32), x2 = 0, x3 = 0;
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = multiplier0 * x0, product1 = multiplier1 * x2;
    x0 = static_cast<uint32_t>(product1 >> 32) ^ x1 ^ key0;
    x2 = static_cast<uint32_t>(product0 >> 32) ^ x3 ^ key1;
    x1 = static_cast<uint32_t>(product1);
    x3 = static_cast<uint32_t>(product0);
    key0 += 0x9E3779B9;
    key1 += 0xBB67AE85;
  }
  words[0] = x0, words[1] = x1, words[2] = x2, words[3] = x3;
}

// In [0, 1), one of 2^24 numbers, which float32 has exactly.
NPU_INLINE float uniform_of(uint32_t word) { return static_cast<float>(word >> 8) * 0x1p-24f; }

}  // namespace npu::pointwise
