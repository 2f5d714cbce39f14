#include "ops/gemm/host_block.h"

#include "ops/gemm/tile.h"
#include "ops/host_simd.h"

namespace npu::gemm {
namespace {

template <class Lane, class E, int kBytes>
struct Multiply {
  static constexpr int kLanes = kBytes / sizeof(Lane), kRowColumns = kRowVectors<kBytes> * kLanes;

  template <int kRows, int kVectors, bool kFetches = false>
  static NPU_INLINE void tile(const Block& block, int64_t row, int64_t column) {
    const Lane* rows[kRows];
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) rows[i] = static_cast<const Lane*>(block.rows) + (row + i) * block.row_stride;
    using Sums = Tile<Lane, kBytes, kRows, kVectors>;
    const auto* start = static_cast<const Lane*>(block.start);
    Sums sums;
    if (start) sums = Sums(start + row * block.start_stride + column, block.start_stride);
    const E* const panel = static_cast<const E*>(block.panel) + column;
    if constexpr (kFetches) {
      sums.add_and_fetch(rows, panel, block.panel_stride, block.depth, block.row_step,
                         static_cast<const E*>(block.next) + block.depth * column);
    } else {
      sums.add(rows, panel, block.panel_stride, block.depth, block.row_step);
    }
    sums.finish();
    Lane* const out = static_cast<Lane*>(block.out) + row * block.out_stride + column;
    const int64_t columns = block.columns - column;
    if constexpr (std::is_same_v<E, float>) {
      if (block.steps) finish<kRows>(sums, *block.steps, out, block.out_stride, columns);
    }
    if (columns >= Sums::kColumns) sums.store(out, block.out_stride);
    else sums.store(out, block.out_stride, columns);
  }

  template <int kRows, class Sums>
  static NPU_INLINE void finish(Sums& sums, const fusion::RegisterSteps& steps, float* out, int64_t out_stride, int64_t columns) {
    float* to[kRows];
    for (int i = 0; i < kRows; ++i) to[i] = out + i * out_stride;
    steps.finish<kRows>(sums, to, columns);
  }

  template <int kVectors>
  static NPU_INLINE void columns(const Block& block, int64_t column) {
    int64_t row = 0;
    for (; row + kTileRows <= block.num_rows; row += kTileRows) tile<kTileRows, kVectors>(block, row, column);
    if constexpr (std::is_same_v<E, float>) {
      if (row + 4 <= block.num_rows) tile<4, kVectors>(block, row, column), row += 4;
      if (row + 2 <= block.num_rows) tile<2, kVectors>(block, row, column), row += 2;
    }
    for (; row < block.num_rows; ++row) tile<1, kVectors>(block, row, column);
  }

  // As many columns as a single row takes at a time, which are several tiles. Tiles of fewer rows are wider, so that all
  // have enough sums. The first tile of several rows brings what is next into the caches, a share in each column.
  static NPU_INLINE void several_tiles(const Block& block, int64_t first) {
    constexpr int kVectors = kTileVectors<kBytes>;
    int64_t row = block.num_rows / kTileRows * kTileRows;
    for (int64_t column = first; column < first + kRowColumns; column += kVectors * kLanes) {
      for (int64_t at = 0; at < row; at += kTileRows) first_or_other_tile<kTileRows, kVectors>(block, at, column);
    }
    if (block.is_streamed && row == 0) tile<1, kRowVectors<kBytes>>(block, row++, first);
    if (row + 4 <= block.num_rows) row += tiles_across<4, kVectors>(block, row, first);
    if (row + 3 == block.num_rows) row += tiles_across<3, 2 * kVectors>(block, row, first);
    if (row + 2 <= block.num_rows) row += tiles_across<2, 2 * kVectors>(block, row, first);
    if (row < block.num_rows) tile<1, kRowVectors<kBytes>>(block, row, first);
  }

  template <int kRows, int kVectors>
  static NPU_INLINE int64_t tiles_across(const Block& block, int64_t row, int64_t first) {
    for (int64_t column = first; column < first + kRowColumns; column += kVectors * kLanes) {
      first_or_other_tile<kRows, kVectors>(block, row, column);
    }
    return kRows;
  }

  template <int kRows, int kVectors>
  static NPU_INLINE void first_or_other_tile(const Block& block, int64_t row, int64_t column) {
    if (row == 0 && block.next) tile<kRows, kVectors, true>(block, row, column);
    else tile<kRows, kVectors>(block, row, column);
  }

  static NPU_INLINE void run(const Block& block) {
    int64_t column = 0;
    if constexpr (kRowVectors<kBytes> > kTileVectors<kBytes>) {
      for (; column + kRowColumns <= block.columns; column += kRowColumns) several_tiles(block, column);
    }
    if constexpr (kTileVectors<kBytes> == 4) {
      for (; column + 3 * kLanes < block.columns; column += 4 * kLanes) columns<4>(block, column);
    }
    for (; column + kLanes < block.columns; column += 2 * kLanes) columns<2>(block, column);
    if (column < block.columns) columns<1>(block, column);
  }
};

// The processor by itself reads ahead in each panel: to ask for it takes longer.
template <class Lane, class E, int kBytes>
struct MultiplyStreams {
  using V = typename VectorOf<Lane, kBytes>::type;
  using Unaligned = typename VectorOf<Lane, kBytes>::unaligned;
  static constexpr int kLanes = kBytes / sizeof(Lane), kVectors = kTileVectors<kBytes>;

  template <int kRows, int kPanels>
  static NPU_INLINE void some(const Streams& s) {
    V sums[kPanels][kRows][kVectors] = {};
    const Lane* const start = static_cast<const Lane*>(s.start);
    const Lane* const x = static_cast<const Lane*>(s.rows);
    const E* panel = static_cast<const E*>(s.panel);
#pragma GCC unroll 16
    for (int at = 0; start && at < kPanels * kRows * kVectors; ++at) {
      const int of = at / (kRows * kVectors), row = at / kVectors % kRows, j = at % kVectors;
      sums[of][row][j] = load_numbers<Lane, kBytes>(start + of * s.start_apart + j * kLanes);
    }
    for (int64_t k = 0; k < s.depth; ++k, panel += kVectors * kLanes) {
#pragma GCC unroll 16
      for (int at = 0; at < kPanels * kVectors; ++at) {
        const int of = at / kVectors, j = at % kVectors;
        const V numbers = load_numbers<Lane, kBytes>(panel + of * s.panel_apart + j * kLanes);
#pragma GCC unroll 2
        for (int row = 0; row < kRows; ++row) sums[of][row][j] += x[row * s.row_stride + k] * numbers;
      }
    }
#pragma GCC unroll 16
    for (int at = 0; at < kPanels * kRows * kVectors; ++at) {
      const int of = at / (kRows * kVectors), row = at / kVectors % kRows, j = at % kVectors;
      Lane* const to = static_cast<Lane*>(s.out) + of * s.out_apart + row * s.out_stride + j * kLanes;
      *reinterpret_cast<Unaligned*>(to) = sums[of][row][j];
    }
  }

  static NPU_INLINE void run(const Streams& s) {
    if (s.num_rows == 2) some<2, 2>(s);
    else if (s.num_panels == 2) some<1, 2>(s);
    else some<1, 4>(s);
  }
};

template <class Lane, class E, int kBytes>
struct DotRows {
  using V = typename VectorOf<Lane, kBytes>::type;
  static constexpr int kLanes = kBytes / sizeof(Lane);
  // Sums, and the vectors that they are made of, fit the registers.
  static constexpr int kMostRows = kBytes == 64 ? 4 : 2;
  static constexpr int kElementRows = 4;

  // Adds the products of a vector of each row, or of the first `count` numbers of one.
  template <bool kIsWhole, int kRows, int kCount>
  static NPU_INLINE void add(V (&sums)[kRows][kCount], const Lane* const* x, const E* const* y, int64_t k,
                             int64_t count = kLanes) {
    const auto load = [&](const auto* from) __attribute__((always_inline)) {
      if constexpr (kIsWhole) return load_numbers<Lane, kBytes>(from + k);
      else return load_first<Lane, kBytes>(from + k, count);
    };
    V numbers[kCount];
#pragma GCC unroll 4
    for (int j = 0; j < kCount; ++j) numbers[j] = load(y[j]);
#pragma GCC unroll 4
    for (int i = 0; i < kRows; ++i) {
      const V of_row = load(x[i]);
#pragma GCC unroll 4
      for (int j = 0; j < kCount; ++j) sums[i][j] += of_row * numbers[j];
    }
  }

  // kRows rows of A times kCount rows of B, which are `step` rows apart: memory is read in several places at the same
  // time, which is faster.
  template <int kRows, int kCount>
  static NPU_INLINE void some(const Dots& dots, int64_t row, int64_t first, int64_t step) {
    const Lane* x[kRows];
    const E* y[kCount];
    for (int i = 0; i < kRows; ++i) x[i] = static_cast<const Lane*>(dots.rows) + (row + i) * dots.row_stride;
    for (int j = 0; j < kCount; ++j) y[j] = static_cast<const E*>(dots.matrix) + (first + j * step) * dots.matrix_stride;
    V sums[kRows][kCount] = {};
    int64_t k = 0;
    if constexpr (kRows == 1) {  // twice as many additions that do not wait for one another
      V others[kRows][kCount] = {};
      for (; k + 2 * kLanes <= dots.depth; k += 2 * kLanes) {
        add<true>(sums, x, y, k);
        add<true>(others, x, y, k + kLanes);
      }
#pragma GCC unroll 4
      for (int j = 0; j < kCount; ++j) sums[0][j] += others[0][j];
    }
    for (; k + kLanes <= dots.depth; k += kLanes) add<true>(sums, x, y, k);
    if (k < dots.depth) add<false>(sums, x, y, k, dots.depth - k);
#pragma GCC unroll 4
    for (int i = 0; i < kRows; ++i) {
      Lane* const out = static_cast<Lane*>(dots.out) + (row + i) * dots.out_stride + first;
#pragma GCC unroll 4
      for (int j = 0; j < kCount; ++j) out[j * step] = sum_of_lanes<Lane, kBytes>(sums[i][j]);
    }
  }

  template <int kCount>
  static NPU_INLINE void all_rows(const Dots& dots, int64_t first, int64_t step) {
    int64_t row = 0;
    for (; row + kMostRows <= dots.num_rows; row += kMostRows) some<kMostRows, kCount>(dots, row, first, step);
    if (kMostRows > 2 && row + 2 <= dots.num_rows) some<2, kCount>(dots, row, first, step), row += 2;
    for (; row < dots.num_rows; ++row) some<1, kCount>(dots, row, first, step);
  }

  static NPU_INLINE void run(const Dots& dots) {
    const int64_t step = dots.count / kElementRows;
    for (int64_t first = 0; first < step; ++first) all_rows<kElementRows>(dots, first, step);
    for (int64_t first = step * kElementRows; first < dots.count; ++first) all_rows<1>(dots, first, 1);
  }
};

template <class Lane>
struct Combine {
  static NPU_INLINE void run(const Combination& it) {
    auto* const sums = static_cast<Lane*>(it.sums);
    const auto* const c = static_cast<const Lane*>(it.c);
    const Lane alpha = it.alpha, beta = it.beta;
    if (!c) {
      for (int64_t i = 0; i < it.n; ++i) sums[i] *= alpha;
    } else {
#pragma GCC ivdep
      for (int64_t i = 0; i < it.n; ++i) sums[i] = alpha * sums[i] + beta * c[i];
    }
  }
};

// Only floats have loops for AVX-512, to compile less.
template <class Lane, class E>
BlockLoops loops_of() {
  constexpr auto tile = [](int bytes, int vectors) { return int64_t{vectors} * bytes / int64_t{sizeof(Lane)}; };
#if defined(__x86_64__)
  if constexpr (sizeof(Lane) == 4) {
    if (has_avx512()) {
      return {run_with_avx512<Multiply<Lane, E, 64>>, run_with_avx512<MultiplyStreams<Lane, E, 64>>, run_with_avx512<DotRows<Lane, E, 64>>,
              run_with_avx512<Combine<Lane>>, tile(64, 1), kTileRows, tile(64, kTileVectors<64>)};
    }
  }
  if (has_avx2()) {
    return {run_with_avx2<Multiply<Lane, E, 32>>, run_with_avx2<MultiplyStreams<Lane, E, 32>>, run_with_avx2<DotRows<Lane, E, 32>>, run_with_avx2<Combine<Lane>>,
            tile(32, 1), kTileRows, tile(32, kTileVectors<32>)};
  }
#endif
  return {Multiply<Lane, E, 16>::run, MultiplyStreams<Lane, E, 16>::run, DotRows<Lane, E, 16>::run, Combine<Lane>::run, tile(16, 1), kTileRows,
          tile(16, kTileVectors<16>)};
}

}  // namespace

const BlockLoops& block_loops(Element element) {
  static const BlockLoops f32 = loops_of<float, float>(), f64 = loops_of<double, double>(),
                          f16 = loops_of<float, Half>(), bf16 = loops_of<float, BFloat16>();
  switch (element) {
    case Element::Float64: return f64;
    case Element::Float16: return f16;
    case Element::BFloat16: return bf16;
    default: return f32;
  }
}

}  // namespace npu::gemm
