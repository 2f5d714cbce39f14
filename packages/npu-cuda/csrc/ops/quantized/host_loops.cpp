#include "ops/quantized/host_loops.h"

#include "ops/host_simd.h"
#include "ops/quantized/host_numbers.h"

namespace npu::quantized {
namespace {

// Groups of whole vectors, of a single one, or of any size.
enum class Groups { Whole, One, Any };

template <int kBytes, bool kIsPacked>
struct DotRows : Numbers<kBytes> {
  using Base = Numbers<kBytes>;
  using typename Base::V;
  using Base::kLanes, Base::load, Base::low_half, Base::sums, Base::to_floats;
  static constexpr int64_t kAhead = 512;  // bytes

  static NPU_INLINE float tail(const Dots& d, const uint8_t* row, const float* x, int64_t begin, int64_t end) {
    float total = 0;
    for (int64_t at = begin; at < end; ++at) {
      total += x[at] * float(static_cast<int8_t>(row[at]));
      if constexpr (kIsPacked) total += x[d.half + at] * float(static_cast<int8_t>(row[at] << 4) >> 4);
    }
    return total;
  }

  template <int kRows, int kVectors>
  static NPU_INLINE void add(const float* x, int64_t x_stride, int64_t half, const uint8_t* integers, int64_t row_bytes,
                             V (&parts)[kRows][kVectors]) {
#pragma GCC unroll 4
    for (int i = 0; i < kRows; ++i) {
      const auto bytes = Base::widen(integers + i * row_bytes);
      const V both = to_floats(bytes);
#pragma GCC unroll 4
      for (int j = 0; j < kVectors; ++j) parts[i][j] += load(x + j * x_stride) * both;
      if constexpr (kIsPacked) {
        const V even = low_half(bytes);
#pragma GCC unroll 4
        for (int j = 0; j < kVectors; ++j) parts[i][j] += load(x + half + j * x_stride) * even;
      }
    }
  }

  // Rows that are `step` apart.
  template <Groups kGroups, int kRows, int kVectors>
  static NPU_INLINE void some(const Dots& dots, int64_t first, int64_t step) {
    const Dots d = dots;  // not in memory that stores might change
    V totals[kRows][kVectors] = {};
    [[maybe_unused]] float rest[kRows][kVectors] = {};
    const int64_t row_bytes = step * d.row_bytes, row_groups = step * d.groups;
    const uint8_t* const integers = d.integers + first * d.row_bytes;
    const float* const scales = d.scales + first * d.groups;
    int64_t at = 0, turn = 0;
    for (int64_t group = 0; group < d.groups; ++group) {
      V parts[kRows][kVectors] = {};
      const int64_t end = at + (kGroups == Groups::One ? kLanes : d.group_bytes);
      do {
        if (kGroups == Groups::Any && at + kLanes > end) break;
        // A vector is a quarter of what memory is read by, or less: one row of several in turn.
        __builtin_prefetch(integers + turn * row_bytes + at + kAhead);
        turn = (turn + 1) % kRows;
        add<kRows, kVectors>(d.x + at, d.x_stride, d.half, integers + at, row_bytes, parts);
        at += kLanes;
      } while (kGroups != Groups::One && at < end);
#pragma GCC unroll 4
      for (int i = 0; i < kRows; ++i) {
        const float scale = scales[i * row_groups + group];
#pragma GCC unroll 4
        for (int j = 0; j < kVectors; ++j) totals[i][j] += parts[i][j] * scale;
      }
      if constexpr (kGroups == Groups::Any) {
        for (int i = 0; i < kRows; ++i) {
          for (int j = 0; j < kVectors; ++j) {
            const float sum = tail(d, integers + i * row_bytes, d.x + j * d.x_stride, at, end);
            rest[i][j] += scales[i * row_groups + group] * sum;
          }
        }
        at = end;
      }
    }
#pragma GCC unroll 4
    for (int j = 0; j < kVectors; ++j) {
      constexpr int kSecond = kRows > 1 ? 1 : 0, kThird = kRows > 2 ? 2 : 0, kFourth = kRows > 2 ? 3 : 0;
      const typename Base::Four found = sums(totals[0][j], totals[kSecond][j], totals[kThird][j], totals[kFourth][j]);
#pragma GCC unroll 4
      for (int i = 0; i < kRows; ++i) d.out[j * d.out_stride + first + i * step] = found[i] + rest[i][j];
    }
  }

  template <Groups kGroups, int kRows, int kVectors>
  static NPU_INLINE void rows(const Dots& d) {
    // Far from one another: a processor reads several places of memory at the same time, each by itself ahead.
    const int64_t step = d.rows / kRows;
    for (int64_t row = 0; row < step; ++row) some<kGroups, kRows, kVectors>(d, row, step);
    for (int64_t row = step * kRows; row < d.rows; ++row) some<kGroups, 1, kVectors>(d, row, 1);
  }

  template <int kVectors>
  static NPU_INLINE void groups(const Dots& d) {
    constexpr int kRows = kVectors > 2 ? 2 : 4;  // as many sums as there are registers for
    if (d.group_bytes == kLanes) return rows<Groups::One, kRows, kVectors>(d);
    if (d.group_bytes > 0 && d.group_bytes % kLanes == 0) return rows<Groups::Whole, kRows, kVectors>(d);
    rows<Groups::Any, 1, kVectors>(d);
  }

  static NPU_INLINE void run(const Dots& d) {
    switch (d.vectors) {
      case 1: return groups<1>(d);
      case 2: return groups<2>(d);
      case 3: return groups<3>(d);
      default: return groups<kMostVectors>(d);
    }
  }
};

template <int kBytes, bool kIsPacked>
struct Unpack : Numbers<kBytes> {
  using Base = Numbers<kBytes>;
  using typename Base::Ints;
  using Base::kLanes, Base::load, Base::store, Base::to_floats;

  static NPU_INLINE void run(const Panel& p) {
    const float* scales = p.scales;
    int64_t left = p.group - p.first;
    for (int64_t k = 0; k < p.depth; ++k) {
      if (left == 0) left = p.group, scales += p.width;
      --left;
      const int64_t byte = kIsPacked ? k / 2 : k;
      const uint32_t* const words = p.words + byte / 4 * p.width;
      const int up = 24 - static_cast<int>(byte % 4) * 8;
      for (int64_t column = 0; column < p.width; column += kLanes) {
        using Words = typename VectorOf<int32_t, kBytes>::unaligned;
        Ints integers = Ints(*reinterpret_cast<const Words*>(words + column)) << up;
        if constexpr (kIsPacked) {
          // Of 16 * odd + even: the odd one, which is larger where the even one is negative, or the even one.
          integers = k % 2 ? (integers >> 28) + (integers >> 27 & 1) : integers << 4 >> 28;
        } else {
          integers >>= 24;
        }
        store(to_floats(integers) * load(scales + column), p.numbers + k * p.width + column);
      }
    }
  }
};

template <bool kIsPacked>
Loops loops_of() {
#if defined(__x86_64__)
  if (has_avx512()) return {run_with_avx512<DotRows<64, kIsPacked>>, run_with_avx512<Unpack<64, kIsPacked>>};
  if (has_avx2()) return {run_with_avx2<DotRows<32, kIsPacked>>, run_with_avx2<Unpack<32, kIsPacked>>};
#endif
  return {DotRows<16, kIsPacked>::run, Unpack<16, kIsPacked>::run};
}

}  // namespace

const Loops& loops(bool is_packed) {
  static const Loops whole = loops_of<false>(), packed = loops_of<true>();
  return is_packed ? packed : whole;
}

}  // namespace npu::quantized
