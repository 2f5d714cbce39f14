#include "ops/quantized/host_dynamic_loops.h"

#include <algorithm>

#include "ops/host_simd.h"
#include "ops/quantized/host_byte_products.h"

namespace npu::quantized {
namespace {

// ---- rounding ----

struct Round {
  static constexpr int32_t kInfinity = 0x7f800000;
  static constexpr float kHalfWay = 12582912.0f;  // 1.5 * 2^23: what is added to it is rounded to an integer

  // The scale of a block, and its integers: to nearest, ties to even. One with an infinity or NaN has such a scale.
  static NPU_INLINE float block(const float* numbers, int64_t count, int8_t* integers) {
    int32_t largest = 0;  // the bits of magnitudes are in their order
    for (int64_t i = 0; i < count; ++i) {
      largest = std::max(largest, std::bit_cast<int32_t>(numbers[i]) & 0x7fffffff);
    }
    const float scale = std::bit_cast<float>(largest) / 127;
    if (largest >= kInfinity || scale == 0) {
      std::memset(integers, 0, size_t(count));
      return scale;
    }
    for (int64_t i = 0; i < count; ++i) {
      const int32_t bits = std::bit_cast<int32_t>(numbers[i] / scale + kHalfWay);
      integers[i] = static_cast<int8_t>(std::clamp(bits - std::bit_cast<int32_t>(kHalfWay), -127, 127));
    }
    return scale;
  }

  static NPU_INLINE void run(const Rounding& rounding) {
    const Rounding r = rounding;
    float* scales = r.scales;
    for (int64_t at = 0; at < r.count; at += r.block) {
      const int64_t count = std::min(r.block, r.count - at);
      const float scale = count == 32 ? block(r.numbers + at, 32, r.integers + at)  // the usual number, unrolled
                                      : block(r.numbers + at, count, r.integers + at);
      const int64_t copies = r.word ? count / r.word : 1;
      for (int64_t i = 0; i < copies; ++i) *scales++ = scale;
    }
  }
};

// ---- the order of steps ----

template <int kBytes, bool kIsPacked>
struct Arrange {
  using P = Products<kBytes, kIsPacked>;

  static NPU_INLINE void step(const int8_t* integers, const float* scales, int dead_lanes, char* to) {
    constexpr int kParts = kIsPacked ? 2 : 1;
    for (int i = 0; i < kBytes; ++i) {
      for (int part = 0; part < kParts; ++part) to[part * kBytes + i] = char(uint8_t(integers[kParts * i + part]) ^ P::kSign);
    }
    std::memcpy(to + P::kScales, scales, kBytes);
    const size_t dead = size_t(4 * dead_lanes);
    if (dead > 0) {
      for (int part = 0; part < kParts; ++part) std::memset(to + part * kBytes, P::kSign, dead);
      std::memset(to + P::kScales, 0, dead);
    }
    if constexpr (kIsPacked) {
      const typename P::Ints sums = (P::sums_of_four(to) + P::sums_of_four(to + kBytes)) * -P::kMiddle;
      std::memcpy(to + P::kSums, &sums, kBytes);
    }
  }

  static NPU_INLINE void run(const Arrangement& arrangement) {
    const Arrangement a = arrangement;
    char* to = a.to;
    for (int64_t unit = 0; unit < a.layout.units; ++unit) {
      for (int64_t at = 0; at < a.layout.unit; at += kBytes, to += P::kStep) {
        const int64_t begin = std::min(at, a.layout.unit - kBytes), byte = unit * a.layout.unit + begin;
        step(a.integers + byte * (kIsPacked ? 2 : 1), a.scales + byte / 4, static_cast<int>(at - begin) / 4, to);
      }
    }
  }
};

// ---- products ----

template <int kBytes, bool kIsPacked>
struct DynamicDotRows : Products<kBytes, kIsPacked> {
  using Base = Products<kBytes, kIsPacked>;
  using typename Base::V;
  using Base::kLanes, Base::load, Base::sums, Base::to_floats;
  static constexpr int64_t kAhead = 512;  // bytes

  // The scales of the groups of a vector, each for the lanes of its group.
  template <int kGroups>
  static NPU_INLINE V spread(const float* scales) {
    using Four = typename Base::Four;
    if constexpr (kGroups == 1) return V{} + *scales;
    Four some{};
    if constexpr (kGroups == 4) {
      some = *reinterpret_cast<const typename VectorOf<float, 16>::unaligned*>(scales);
    } else {
      int64_t both;  // not copied into the vector, which would pass through memory
      std::memcpy(&both, scales, sizeof(both));
      some = std::bit_cast<Four>(typename VectorOf<int64_t, 16>::type{both, 0});
    }
#if NPU_HAS_X86_BUILTINS
    typename Base::Ints places;
    for (int lane = 0; lane < kLanes; ++lane) places[lane] = lane * kGroups / kLanes;
    if constexpr (kBytes == 64) {
      const V wide = __builtin_ia32_broadcastf32x4_512(some, V{}, pointwise::kAllLanes);
      return __builtin_ia32_permvarsf512_mask(wide, places, wide, pointwise::kAllLanes);
    } else if constexpr (kBytes == 32) {
      return __builtin_ia32_permvarsf256(__builtin_ia32_ps256_ps(some), places);
    }
#endif
    V lanes;
    for (int lane = 0; lane < kLanes; ++lane) lanes[lane] = some[lane * kGroups / kLanes];
    return lanes;
  }

  // Rows that are `step` apart.
  template <int kGroups, int kRows, int kVectors>
  static NPU_INLINE void some(const DynamicDots& dots, int64_t first, int64_t step) {
    // Rows of W in registers, each of which is multiplied by what is read of A: where there are as many registers.
    constexpr int kAtOnce = kBytes == 64 || kVectors == 4 ? kRows : 1;
    const DynamicDots d = dots;  // not in memory that stores might change
    const int64_t unit_bytes = d.layout.unit, row_bytes = step * d.row_bytes, row_groups = step * d.groups;
    const uint8_t* integers = d.integers + first * d.row_bytes;
    const float* scales = d.scales + first * d.groups;
    const char* x = d.x;
    V totals[kRows][kVectors] = {};
    for (int64_t unit = 0; unit < d.layout.units; ++unit) {
      V parts[kRows][kVectors] = {};
      for (int64_t at = 0; at < unit_bytes; at += kBytes, x += Base::kStep) {
        const int64_t begin = std::min(at, unit_bytes - kBytes);
        const int64_t group = begin / (kBytes / kGroups);
#pragma GCC unroll 4
        for (int i = 0; i < kRows; ++i) __builtin_prefetch(integers + i * row_bytes + begin + kAhead);
#pragma GCC unroll 4
        for (int i = 0; i < kRows; i += kAtOnce) {
          typename Base::Weights weights[kAtOnce];
          V scale[kAtOnce];
#pragma GCC unroll 4
          for (int row = 0; row < kAtOnce; ++row) {
            weights[row] = Base::unpack(integers + (i + row) * row_bytes + begin);
            if constexpr (kGroups > 1) scale[row] = spread<kGroups>(scales + (i + row) * row_groups + group);
          }
#pragma GCC unroll 4
          for (int j = 0; j < kVectors; ++j) {
            const char* const xj = x + j * d.x_stride;
            const V scales_of_x = Base::template read<V>(xj + Base::kScales);
#pragma GCC unroll 4
            for (int row = 0; row < kAtOnce; ++row) {
              const V sums = to_floats(Base::dot(weights[row], xj)) * scales_of_x;
              if constexpr (kGroups > 1) totals[i + row][j] += sums * scale[row];
              else parts[i + row][j] += sums;
            }
          }
        }
      }
      if constexpr (kGroups == 1) {
#pragma GCC unroll 4
        for (int i = 0; i < kRows; ++i) {
          const V scale = spread<1>(scales + i * row_groups);
#pragma GCC unroll 4
          for (int j = 0; j < kVectors; ++j) totals[i][j] += parts[i][j] * scale;
        }
        ++scales;
      }
      integers += unit_bytes;
    }
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) {
      constexpr int kSecond = kRows > 1 ? 1 : 0, kThird = kRows > 2 ? 2 : 0, kFourth = kRows > 2 ? 3 : 0;
      const typename Base::Four found = sums(totals[0][j], totals[kSecond][j], totals[kThird][j], totals[kFourth][j]);
#pragma GCC unroll 4
      for (int i = 0; i < kRows; ++i) d.out[j * d.out_stride + first + i * step] = found[i];
    }
  }

  template <int kGroups, int kVectors>
  static NPU_INLINE void rows(const DynamicDots& d) {
    // As many sums as there are registers for.
    constexpr int kRows = kVectors > 2 && (kIsPacked || kBytes < 64) ? 2 : 4;
    // Far from one another: a processor reads several places of memory at the same time, each by itself ahead.
    const int64_t step = d.rows / kRows;
    for (int64_t row = 0; row < step; ++row) some<kGroups, kRows, kVectors>(d, row, step);
    for (int64_t row = step * kRows; row < d.rows; ++row) some<kGroups, 1, kVectors>(d, row, 1);
  }

  template <int kGroups>
  static NPU_INLINE void vectors(const DynamicDots& d) {
    int64_t done = 0;
    for (; d.vectors - done >= 4; done += 4) rows<kGroups, 4>(d.from(done));
    for (; d.vectors - done >= 2; done += 2) rows<kGroups, 2>(d.from(done));
    if (done < d.vectors) rows<kGroups, 1>(d.from(done));
  }

  static NPU_INLINE void run(const DynamicDots& d) {
    switch (d.layout.groups_of_vector) {
      case 1: return vectors<1>(d);
      case 2: return vectors<2>(d);
      default: return vectors<4>(d);
    }
  }
};

// ---- any sizes ----

template <bool kIsPacked>
struct DotAnyRows {
  static NPU_INLINE int32_t dot(const uint8_t* w, const int8_t* x, int64_t count) {
    int32_t sum = 0;
    if constexpr (kIsPacked) {
      for (int64_t i = 0; i < count / 2; ++i) {
        const uint8_t both = w[i] + 0x88;  // 16 * (odd + 8) + (even + 8)
        sum += ((both & 15) - 8) * x[2 * i] + ((both >> 4) - 8) * x[2 * i + 1];
      }
    } else {
      for (int64_t i = 0; i < count; ++i) sum += static_cast<int8_t>(w[i]) * x[i];
    }
    return sum;
  }

  static NPU_INLINE float row(const DynamicDots& d, int64_t row, const char* x) {
    const auto* integers = reinterpret_cast<const int8_t*>(x);
    const auto* x_scales = reinterpret_cast<const float*>(x + d.scales_at);
    const uint8_t* const w = d.integers + row * d.row_bytes;
    float total = 0;
    for (int64_t group = 0; group < d.groups; ++group) {
      float part = 0;
      const int64_t end = (group + 1) * d.group;
      for (int64_t at = group * d.group; at < end; at += d.block) {
        part += float(dot(w + (kIsPacked ? at / 2 : at), integers + at, std::min(d.block, end - at))) * *x_scales++;
      }
      total += part * d.scales[row * d.groups + group];
    }
    return total;
  }

  static NPU_INLINE void run(const DynamicDots& d) {
    for (int64_t i = 0; i < d.rows; ++i) {
      for (int64_t j = 0; j < d.vectors; ++j) d.out[j * d.out_stride + i] = row(d, i, d.x + j * d.x_stride);
    }
  }
};

#if defined(__x86_64__)
template <class Rows, class Dots>
DynamicLoops loops_with_vnni(int64_t vector) {
  return {vector, run_with_vnni<Round, const Rounding&>, run_with_vnni<Rows, const Arrangement&>,
          run_with_vnni<Dots, const DynamicDots&>};
}

template <class Rows, class Dots>
DynamicLoops loops_with_avx2(int64_t vector) {
  return {vector, run_with_avx2<Round, const Rounding&>, run_with_avx2<Rows, const Arrangement&>,
          run_with_avx2<Dots, const DynamicDots&>};
}
#endif

template <bool kIsPacked>
DynamicChoices choices_of() {
  using Plain = Arrange<16, kIsPacked>;
  DynamicChoices made{};
  DynamicLoops any{0, Round::run, Plain::run, DotAnyRows<kIsPacked>::run};
#if defined(__x86_64__)
  if (has_vnni()) made.loops[made.count++] = loops_with_vnni<Arrange<64, kIsPacked>, DynamicDotRows<64, kIsPacked>>(64);
  if (has_avx2()) {
    made.loops[made.count++] = loops_with_avx2<Arrange<32, kIsPacked>, DynamicDotRows<32, kIsPacked>>(32);
    any = loops_with_avx2<Plain, DotAnyRows<kIsPacked>>(0);
  }
#endif
  made.loops[made.count++] = {16, Round::run, Plain::run, DynamicDotRows<16, kIsPacked>::run};
  made.loops[made.count++] = any;
  return made;
}

}  // namespace

const DynamicChoices& dynamic_choices(bool is_packed) {
  static const DynamicChoices whole = choices_of<false>(), packed = choices_of<true>();
  return is_packed ? packed : whole;
}

}  // namespace npu::quantized
