#include <algorithm>

#include "ops/host_simd.h"
#include "ops/quantized/host_byte_products.h"
#include "ops/quantized/host_dynamic_loops.h"

namespace npu::quantized {
namespace {

template <int kBytes, bool kIsPacked>
struct Order {
  using P = Products<kBytes, kIsPacked>;
  using Bytes = typename VectorOf<int8_t, kBytes>::type;

  // Of eight integers, the even ones and the odd ones.
  static NPU_INLINE void part(int8_t* integers, int64_t count) {
    Bytes places;
    for (int i = 0; i < kBytes; ++i) places[i] = int8_t(i / 8 * 8 + i % 4 * 2 + i % 8 / 4);
    using Unaligned = typename VectorOf<int8_t, kBytes>::unaligned;
    int64_t at = 0;
    for (; at + kBytes <= count; at += kBytes) {
      auto* const some = reinterpret_cast<Unaligned*>(integers + at);
      *some = __builtin_shuffle(Bytes(*some), places);
    }
    for (; at < count; at += 8) {
      int8_t eight[8];
      std::memcpy(eight, integers + at, 8);
      for (int i = 0; i < 8; ++i) integers[at + i] = eight[places[i]];
    }
  }

  static NPU_INLINE int32_t sum(const int8_t* integers, int64_t count) {
    int32_t total = 0;
    for (int64_t i = 0; i < count; ++i) total += integers[i];
    return total;
  }

  static NPU_INLINE void run(int8_t* integers, int64_t count, int64_t block, int32_t* starts) {
    for (int64_t at = 0; at < count; at += block) {
      const int64_t some = std::min(block, count - at);
      *starts++ = -P::kOffset * (some == 32 ? sum(integers + at, 32) : sum(integers + at, some));
    }
    if constexpr (kIsPacked) part(integers, count);
  }
};

template <int kBytes>
inline constexpr int kVectorsOfPanel = kBytes == 64 ? 2 : 1;  // as many sums as there are registers for

template <int kBytes, bool kIsPacked>
struct Fill {
  using P = Products<kBytes, kIsPacked>;
  using Bytes = typename VectorOf<uint8_t, kBytes>::type;

  static NPU_INLINE void run(const uint32_t* words, int64_t count, char* panel) {
    constexpr int64_t width = kVectorsOfPanel<kBytes> * P::kLanes;
    for (int64_t row = 0; row < count; row += width) {
#pragma GCC unroll 2
      for (int64_t i = row; i < row + width; i += P::kLanes) {
        const Bytes bytes = P::template read<Bytes>(words + i);
        if constexpr (kIsPacked) {
          const auto both = P::split(bytes);
          std::memcpy(panel + 4 * (row + i), &both.first, kBytes);
          std::memcpy(panel + 4 * (row + i + width), &both.second, kBytes);
        } else {
          const Bytes moved = bytes + uint8_t(P::kOffset);
          std::memcpy(panel + 4 * i, &moved, kBytes);
        }
      }
    }
  }
};

template <int kBytes, bool kIsPacked>
struct PanelRows : Products<kBytes, kIsPacked> {
  using Base = Products<kBytes, kIsPacked>;
  using typename Base::Bytes, typename Base::Ints, typename Base::V;
  using Base::kLanes, Base::load, Base::store, Base::to_floats;
  static constexpr int kVectors = kVectorsOfPanel<kBytes>, kWidth = kVectors * kLanes;

  // A word in all lanes. GCC would insert it into one after the other.
  static NPU_INLINE Ints spread(const char* from) {
    int32_t word;
    std::memcpy(&word, from, sizeof(word));
#if NPU_HAS_X86_BUILTINS
    if constexpr (kBytes == 64) return __builtin_ia32_pbroadcastd512_gpr_mask(word, Ints{}, pointwise::kAllLanes);
    else if constexpr (kBytes == 32) return (Ints)__builtin_ia32_vbroadcastss256(reinterpret_cast<const float*>(from));
#endif
    return Ints{} + word;
  }

  template <int kRows>
  static NPU_INLINE void tile(const PanelDots& dots, int64_t row) {
    const PanelDots d = dots;  // not in memory that stores might change
    const int64_t stride = d.x_stride;
    const char *x = d.x + row * stride, *x_scales = d.x_scales + row * stride, *starts = d.starts + row * stride;
    const char* panel = d.panel;
    for (int64_t group = 0; group < d.groups; ++group) {
      V parts[kRows][kVectors] = {};
      for (int64_t at = 0; at < d.group; at += d.block, x_scales += 4, starts += 4) {
        Ints sums[kRows][kVectors];
#pragma GCC unroll 6
        for (int i = 0; i < kRows; ++i) {
          const Ints start = spread(starts + i * stride);
#pragma GCC unroll 2
          for (int j = 0; j < kVectors; ++j) sums[i][j] = start;
        }
        for (int64_t words = std::min(d.block, d.group - at) / 4; words > 0; --words, x += 4, panel += 4 * kWidth) {
          Bytes w[kVectors];
#pragma GCC unroll 2
          for (int j = 0; j < kVectors; ++j) w[j] = Base::template read<Bytes>(panel + j * kBytes);
#pragma GCC unroll 6
          for (int i = 0; i < kRows; ++i) {
            const Ints word = spread(x + i * stride);
#pragma GCC unroll 2
            for (int j = 0; j < kVectors; ++j) sums[i][j] = Base::add_words(sums[i][j], w[j], word);
          }
        }
#pragma GCC unroll 6
        for (int i = 0; i < kRows; ++i) {
          const V scale = (V)spread(x_scales + i * stride);
#pragma GCC unroll 2
          for (int j = 0; j < kVectors; ++j) parts[i][j] += to_floats(sums[i][j]) * scale;
        }
      }
      const float* const scales = d.scales + group * kWidth;
#pragma GCC unroll 6
      for (int i = 0; i < kRows; ++i) {
        float* const out = d.out + (row + i) * kWidth;
#pragma GCC unroll 2
        for (int j = 0; j < kVectors; ++j) {
          const int at = j * kLanes;
          store(load(out + at) + parts[i][j] * load(scales + at), out + at);
        }
      }
    }
  }

  template <int kRows>
  static NPU_INLINE void rows(const PanelDots& d, int64_t row) {
    for (; d.rows - row >= kRows; row += kRows) tile<kRows>(d, row);
    if constexpr (kRows > 1) rows<kRows / 2>(d, row);
  }

  static NPU_INLINE void run(const PanelDots& d) { rows<kBytes == 64 ? 6 : 4>(d, 0); }
};

template <bool kIsPacked>
PanelLoops loops_of() {
#if defined(__x86_64__)
  if (has_vnni()) {
    return {PanelRows<64, kIsPacked>::kWidth, 10, run_with_vnni<Order<64, kIsPacked>, int8_t*, int64_t, int64_t, int32_t*>,
            run_with_vnni<Fill<64, kIsPacked>, const uint32_t*, int64_t, char*>,
            run_with_vnni<PanelRows<64, kIsPacked>, const PanelDots&>};
  }
  if (has_avx2()) {
    return {PanelRows<32, kIsPacked>::kWidth, 64, run_with_avx2<Order<32, kIsPacked>, int8_t*, int64_t, int64_t, int32_t*>,
            run_with_avx2<Fill<32, kIsPacked>, const uint32_t*, int64_t, char*>,
            run_with_avx2<PanelRows<32, kIsPacked>, const PanelDots&>};
  }
#endif
  return {PanelRows<16, kIsPacked>::kWidth, 64, Order<16, kIsPacked>::run, Fill<16, kIsPacked>::run,
          PanelRows<16, kIsPacked>::run};
}

}  // namespace

const PanelLoops& panel_loops(bool is_packed) {
  static const PanelLoops whole = loops_of<false>(), packed = loops_of<true>();
  return is_packed ? packed : whole;
}

}  // namespace npu::quantized
