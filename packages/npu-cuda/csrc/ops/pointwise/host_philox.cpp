// Rows of random numbers on the host.
#include <algorithm>

#include "ops/host_simd.h"
#include "ops/pointwise/host_call.h"

namespace npu::pointwise {
namespace {

constexpr int64_t kBlocks = 16;  // of four words, which are computed at once

template <class Number>
struct FillRandom {
  static NPU_INLINE void run(const RandomKey& key, uint64_t place, Number* numbers, int64_t n) {
    uint32_t words[kBlocks][4];
    while (n > 0) {
      const uint64_t counter = key.offset + place / 4;
      for (uint64_t b = 0; b < kBlocks; ++b) philox(key.seed, counter + b, words[b]);
      const auto skipped = static_cast<int64_t>(place % 4);
      const int64_t count = std::min(n, 4 * kBlocks - skipped);
      for (int64_t i = 0; i < count; ++i) numbers[i] = Number(uniform_of((&words[0][0])[skipped + i]));
      numbers += count, place += static_cast<uint64_t>(count), n -= count;
    }
  }
};

template <class Number>
void fill(const RandomKey& key, int64_t place, int64_t stride, void* row, int64_t n) {
  auto* numbers = static_cast<Number*>(row);
  if (stride == 1) {
    run_simd<FillRandom<Number>, const RandomKey&>(key, static_cast<uint64_t>(place), numbers, n);
    return;
  }
  for (int64_t i = 0; i < n; ++i) FillRandom<Number>::run(key, static_cast<uint64_t>(place + i * stride), numbers + i, 1);
}

}  // namespace

void read_random(const RandomKey& key, int64_t place, int64_t stride, Class type, void* numbers, int64_t n) {
  (type == kFloat32 ? fill<float> : fill<double>)(key, place, stride, numbers, n);
}

}  // namespace npu::pointwise
