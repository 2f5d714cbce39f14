#include "ops/gemm/host_block.h"

#include "ops/gemm/tile.h"
#include "ops/host_simd.h"

namespace npu::gemm {
namespace {

template <class Lane, class E, int kBytes>
struct Multiply {
  static constexpr int kLanes = kBytes / sizeof(Lane);

  template <int kRows, int kVectors>
  static NPU_INLINE void tile(const Block& block, int64_t row, int64_t column) {
    const Lane* rows[kRows];
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) rows[i] = static_cast<const Lane*>(block.rows) + (row + i) * block.row_stride;
    using Sums = Tile<Lane, kBytes, kRows, kVectors>;
    const auto* start = static_cast<const Lane*>(block.start);
    Sums sums;
    if (start) sums = Sums(start + row * block.start_stride + column, block.start_stride);
    sums.add(rows, static_cast<const E*>(block.panel) + column, block.panel_stride, block.depth);
    sums.finish();
    Lane* const out = static_cast<Lane*>(block.out) + row * block.out_stride + column;
    const int64_t columns = block.columns - column;
    if (columns >= Sums::kColumns) sums.store(out, block.out_stride);
    else sums.store(out, block.out_stride, columns);
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

  static NPU_INLINE void run(const Block& block) {
    int64_t column = 0;
    if constexpr (kTileVectors<kBytes> == 4) {
      for (; column + 3 * kLanes < block.columns; column += 4 * kLanes) columns<4>(block, column);
    }
    for (; column + kLanes < block.columns; column += 2 * kLanes) columns<2>(block, column);
    if (column < block.columns) columns<1>(block, column);
  }
};

template <class Lane, class E, int kBytes>
struct DotRows {
  using V = typename VectorOf<Lane, kBytes>::type;
  static constexpr int kLanes = kBytes / sizeof(Lane);

  static NPU_INLINE Lane number(Lane element) { return element; }
  static NPU_INLINE Lane number(Half element) { return to_float(element); }
  static NPU_INLINE Lane number(BFloat16 element) { return to_float(element); }

  template <int kRows>
  static NPU_INLINE void some(const Dots& dots, int64_t first) {
    const auto* x = static_cast<const Lane*>(dots.row);
    const E* rows[kRows];
    V sums[kRows][2] = {};
    for (int i = 0; i < kRows; ++i) rows[i] = static_cast<const E*>(dots.matrix) + (first + i) * dots.stride;
    int64_t k = 0;
    for (; k + 2 * kLanes <= dots.depth; k += 2 * kLanes) {
#pragma GCC unroll 2
      for (int half = 0; half < 2; ++half) {
        const V numbers = load_numbers<Lane, kBytes>(x + k + half * kLanes);
#pragma GCC unroll 4
        for (int i = 0; i < kRows; ++i) {
          sums[i][half] += numbers * load_numbers<Lane, kBytes>(rows[i] + k + half * kLanes);
        }
      }
    }
#pragma GCC unroll 4
    for (int i = 0; i < kRows; ++i) {
      const V both = sums[i][0] + sums[i][1];
      Lane sum = 0;
      for (int lane = 0; lane < kLanes; ++lane) sum += both[lane];
      for (int64_t at = k; at < dots.depth; ++at) sum += x[at] * number(rows[i][at]);
      static_cast<Lane*>(dots.out)[first + i] = sum;
    }
  }

  static NPU_INLINE void run(const Dots& dots) {
    int64_t row = 0;
    for (; row + 4 <= dots.count; row += 4) some<4>(dots, row);
    for (; row < dots.count; ++row) some<1>(dots, row);
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
      return {run_with_avx512<Multiply<Lane, E, 64>>, run_with_avx512<DotRows<Lane, E, 64>>,
              run_with_avx512<Combine<Lane>>, tile(64, 1), kTileRows, tile(64, kTileVectors<64>)};
    }
  }
  if (has_avx2()) {
    return {run_with_avx2<Multiply<Lane, E, 32>>, run_with_avx2<DotRows<Lane, E, 32>>, run_with_avx2<Combine<Lane>>,
            tile(32, 1), kTileRows, tile(32, kTileVectors<32>)};
  }
#endif
  return {Multiply<Lane, E, 16>::run, DotRows<Lane, E, 16>::run, Combine<Lane>::run, tile(16, 1), kTileRows,
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
