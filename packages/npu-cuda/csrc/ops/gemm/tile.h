// A tile of a matrix product in registers: kRows rows of kVectors vectors of sums. Its rows of numbers are given by
// pointers, so that they may be those of a matrix, pixels of an image, or queries. What they are multiplied by is a
// panel, whose rows have the elements of all columns of the tile side by side; 16-bit floats are converted in registers.
// A tile of many sums adds in the order of the numbers of a row, one of few sums adds parts of it and joins them, one of a
// single row adds numbers of four parts in turn. All of it is inlined into loops of an instruction set (host_simd.h):
//
//   Tile<float, kBytes, 6, kTileVectors<kBytes>> tile(bias, 0);
//   for (each tap) tile.add(rows_of_pixels, panel_of_tap, kColumns, channels);
//   tile.finish();
//   tile.each([](auto x) { return relu(x); });
//   tile.store(out, out_stride);
#pragma once

#include <array>

#include "ops/floats.h"
#include "ops/pointwise/vector_instructions.h"

namespace npu::gemm {

using pointwise::VectorOf;

// The largest tile whose sums, a row of a panel and a number fit the registers of vectors of so many bytes.
inline constexpr int kTileRows = 6;
#if defined(__aarch64__)
template <int kBytes>
inline constexpr int kTileVectors = 4;
#else
template <int kBytes>
inline constexpr int kTileVectors = kBytes == 64 ? 4 : 2;
#endif
// Of the tile of a single row. Where panels are wider than the largest tile, it takes whole rows of a panel: a wider tile,
// whose sums fit the registers as well. Not of vectors of 16 bytes, to compile less.
template <int kBytes>
inline constexpr int kRowVectors = kBytes == 32 ? 8 : kTileVectors<kBytes>;

// Consecutive elements as a vector of numbers.
template <class Lane, int kBytes>
NPU_INLINE auto load_numbers(const Lane* from) {
  using Unaligned = typename VectorOf<Lane, kBytes>::unaligned;
  return typename VectorOf<Lane, kBytes>::type(*reinterpret_cast<const Unaligned*>(from));
}

template <class Lane, int kBytes>
NPU_INLINE auto load_numbers(const BFloat16* from) {
  using Wide = typename VectorOf<uint32_t, kBytes>::type;
  const auto half = *reinterpret_cast<const typename VectorOf<uint16_t, kBytes / 2>::unaligned*>(from);
  Wide bits;
#if NPU_HAS_X86_BUILTINS  // GCC 12 converts in two halves
  if constexpr (kBytes == 64) {
    bits = std::bit_cast<Wide>(__builtin_ia32_pmovzxwd512_mask(std::bit_cast<typename VectorOf<short, 32>::type>(half),
                                                               typename VectorOf<int, 64>::type{}, pointwise::kAllLanes));
  } else {
    bits = __builtin_convertvector(half, Wide);
  }
#else
  bits = __builtin_convertvector(half, Wide);
#endif
  return std::bit_cast<typename VectorOf<float, kBytes>::type>(bits << 16);
}

template <class Lane, int kBytes>
NPU_INLINE auto load_numbers(const Half* from) {
  typename VectorOf<float, kBytes>::type numbers;
#if NPU_HAS_X86_BUILTINS
  if constexpr (kBytes >= 32) {
    const auto halves = std::bit_cast<typename VectorOf<short, kBytes / 2>::type>(
        *reinterpret_cast<const typename VectorOf<uint16_t, kBytes / 2>::unaligned*>(from));
    if constexpr (kBytes == 64) {
      numbers = __builtin_ia32_vcvtph2ps512_mask(halves, numbers, pointwise::kAllLanes, pointwise::kRoundAsSet);
    } else {
      numbers = __builtin_ia32_vcvtph2ps256(halves);
    }
    return numbers;
  }
#endif
  for (int lane = 0; lane < kBytes / 4; ++lane) numbers[lane] = to_float(from[lane]);
  return numbers;
}

// The first `count` lanes, fewer than all of them; 0 in the others.
template <class Lane, int kBytes, class E>
NPU_INLINE auto load_first(const E* from, int64_t count) {
  using V = typename VectorOf<Lane, kBytes>::type;
#if NPU_HAS_X86_BUILTINS
  if constexpr (kBytes == 64 && std::is_same_v<E, float>) {
    return V(__builtin_ia32_loadups512_mask(from, V{}, static_cast<uint16_t>((1u << count) - 1)));
  }
#endif
  E elements[kBytes / sizeof(Lane)] = {};
#pragma GCC unroll 1
  for (int64_t lane = 0; lane < count; ++lane) elements[lane] = from[lane];
  return V(load_numbers<Lane, kBytes>(elements));
}

// Halves of a vector are added, then halves of that, and so on.
template <class Lane, int kBytes>
NPU_INLINE Lane sum_of_lanes(typename VectorOf<Lane, kBytes>::type numbers) {
  if constexpr (kBytes == sizeof(Lane)) {
    return numbers[0];
  } else {
    const auto halves = std::bit_cast<std::array<typename VectorOf<Lane, kBytes / 2>::type, 2>>(numbers);
    return sum_of_lanes<Lane, kBytes / 2>(halves[0] + halves[1]);
  }
}

// Writes the first `count` lanes, or all where it is larger.
template <class Lane, int kBytes>
NPU_INLINE void store_first(typename VectorOf<Lane, kBytes>::type numbers, Lane* to, int64_t count) {
  constexpr int64_t lanes = kBytes / sizeof(Lane);
  if (count >= lanes) {
    *reinterpret_cast<typename VectorOf<Lane, kBytes>::unaligned*>(to) = numbers;
    return;
  }
#if NPU_HAS_X86_BUILTINS
  if constexpr (kBytes == 64 && sizeof(Lane) == 4) {
    return __builtin_ia32_storeups512_mask(to, numbers, static_cast<uint16_t>((1u << count) - 1));
  } else if constexpr (kBytes == 32 && sizeof(Lane) == 4) {
    using Ints = typename VectorOf<int, 32>::type;
    const Ints mask = Ints{0, 1, 2, 3, 4, 5, 6, 7} < static_cast<int>(count);
    return __builtin_ia32_maskstoreps256(reinterpret_cast<typename VectorOf<float, 32>::type*>(to), mask, numbers);
  }
#endif
#pragma GCC unroll 1
  for (int64_t lane = 0; lane < count; ++lane) to[lane] = numbers[lane];
}

template <class Lane, int kBytes, int kRows, int kVectors>
class Tile {
 public:
  using V = typename VectorOf<Lane, kBytes>::type;
  using Unaligned = typename VectorOf<Lane, kBytes>::unaligned;
  static constexpr int kLanes = kBytes / sizeof(Lane);
  static constexpr int kColumns = kVectors * kLanes;

  NPU_INLINE Tile() {
#pragma GCC unroll 32
    for (int at = 0; at < kSums; ++at) sums_[at] = V{};
  }

  // From a row of numbers for each row of the tile; the same for all where `stride` is 0.
  NPU_INLINE Tile(const Lane* rows, int64_t stride) : Tile() {
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
      for (int j = 0; j < kVectors; ++j) sum(0, i, j) = load_numbers<Lane, kBytes>(rows + i * stride + j * kLanes);
    }
  }

  // Adds the products of `depth` numbers of each row, which are `step` apart, and as many rows of a panel, which are
  // `stride` elements apart.
  template <class E>
  NPU_INLINE void add(const Lane* const* rows, const E* panel, int64_t stride, int64_t depth, int64_t step = 1) {
    add_some<false>(rows, panel, stride, depth, step, panel);
  }

  // Adds the same products, and brings about as many elements as the tile reads, from `next` on, into the caches.
  template <class E>
  NPU_INLINE void add_and_fetch(const Lane* const* rows, const E* panel, int64_t stride, int64_t depth, int64_t step, const E* next) {
    add_some<true>(rows, panel, stride, depth, step, next);
  }

  // Joins the sums; once, after the last add.
  NPU_INLINE void finish() {
#pragma GCC unroll 4
    for (int set = 1; set < kSets; ++set) {
#pragma GCC unroll 32
      for (int at = 0; at < kRows * kVectors; ++at) sums_[at] += sums_[set * kRows * kVectors + at];
    }
  }

  // Makes every sum f(sum): an expression over Values, such as that of an op of the tables.
  template <class F>
  NPU_INLINE void each(F f) {
#pragma GCC unroll 32
    for (int at = 0; at < kRows * kVectors; ++at) sums_[at] = f(pointwise::Value<V>::of(sums_[at])).raw;
  }

  // Adds the first columns of other rows.
  NPU_INLINE void add_rows(const Lane* const* rows, int64_t columns) {
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
      for (int j = 0; j < kVectors; ++j) {
        const int64_t left = columns - j * kLanes;
        const Lane* const from = rows[i] + j * kLanes;
        if (left >= kLanes) sum(0, i, j) += load_numbers<Lane, kBytes>(from);
        else if (left > 0) sum(0, i, j) += load_first<Lane, kBytes>(from, left);
      }
    }
  }

  NPU_INLINE void store(Lane* rows, int64_t stride) {
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) store_row(i, rows + i * stride);
  }

  // Writes only the first columns.
  NPU_INLINE void store(Lane* rows, int64_t stride, int64_t columns) {
    Lane* to[kRows];
    for (int i = 0; i < kRows; ++i) to[i] = rows + i * stride;
    store(to, columns);
  }

  // Writes the first columns of each row to an address of its own.
  NPU_INLINE void store(Lane* const* rows, int64_t columns) {
    if (columns >= kColumns) {
#pragma GCC unroll 8
      for (int i = 0; i < kRows; ++i) store_row(i, rows[i]);
      return;
    }
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 8
      for (int j = 0; j < kVectors; ++j) {
        const int64_t left = columns - j * kLanes;
        if (left > 0) store_first<Lane, kBytes>(sum(0, i, j), rows[i] + j * kLanes, left);
      }
    }
  }

 private:
  // Additions that do not wait for one another: enough of them to keep the processor busy. A single row reads a panel
  // in several places at the same time, since memory is faster then.
  static constexpr int kSets = kVectors == 8 ? 1 : kRows == 1 ? 4 : kRows * kVectors >= 8 ? 1 : kRows * kVectors >= 4 ? 2 : 4;
  static constexpr int kPlaces = kRows == 1 ? 4 : kSets;
  // Bytes: the processor by itself reads ahead to the end of a page of memory only. Not where loads are what takes time,
  // nor where whole rows of a panel are read.
  static constexpr int kAhead = 4096;
  static constexpr bool kReadsAhead = kVectors < 8 && (kRows <= 2 || kVectors == 4);
  static constexpr int kSums = kSets * kRows * kVectors;

  NPU_INLINE V& sum(int set, int row, int vector) { return sums_[(set * kRows + row) * kVectors + vector]; }

  NPU_INLINE void store_row(int row, Lane* to) {
#pragma GCC unroll 8
    for (int j = 0; j < kVectors; ++j) *reinterpret_cast<Unaligned*>(to + j * kLanes) = sum(0, row, j);
  }

  template <bool kFetches, class E>
  NPU_INLINE void add_some(const Lane* const* rows, const E* panel, int64_t stride, int64_t depth, int64_t step, const E* next) {
    const int64_t part = depth / kPlaces;
    for (int64_t k = 0; k < part; ++k) {
#pragma GCC unroll 4
      for (int place = 0; place < kPlaces; ++place) {
        const int64_t at = place * part + k;
        add_one<kReadsAhead && !kFetches>(place % kSets, rows, at * step, panel + at * stride);
        if constexpr (kFetches) fetch(next + at * kColumns);
      }
    }
    if constexpr (kPlaces > 1) {
      for (int64_t k = kPlaces * part; k < depth; ++k) add_one<kReadsAhead>(0, rows, k * step, panel + k * stride);
    }
  }

  // A row of a panel.
  template <class E>
  NPU_INLINE void fetch(const E* row) {
#pragma GCC unroll 8
    for (int byte = 0; byte < kColumns * int{sizeof(E)}; byte += 64) {
      __builtin_prefetch(reinterpret_cast<const char*>(row) + byte);
    }
  }

  template <bool kIsAhead, class E>
  NPU_INLINE void add_one(int set, const Lane* const* rows, int64_t k, const E* panel) {
    V numbers[kVectors];
#pragma GCC unroll 8
    for (int j = 0; j < kVectors; ++j) {
      numbers[j] = load_numbers<Lane, kBytes>(panel + j * kLanes);
      if constexpr (kIsAhead) __builtin_prefetch(reinterpret_cast<const char*>(panel + j * kLanes) + kAhead);
    }
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) {
      const Lane x = rows[i][k];
#pragma GCC unroll 8
      for (int j = 0; j < kVectors; ++j) sum(set, i, j) += x * numbers[j];
    }
  }

  V sums_[kSums];
};

}  // namespace npu::gemm
