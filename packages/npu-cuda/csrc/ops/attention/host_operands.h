// Keys, values and masks as the loops of the host read them, and the blocks of queries that these loops take.
#pragma once

#include <limits>

#include "ops/attention/attention.h"
#include "ops/gemm/tile.h"
#include "ops/host_simd.h"
#include "ops/pointwise/host_rows.h"
#include "ops/pointwise/vector_math.h"

namespace npu::attention {

inline constexpr int64_t kKeys = 96;    // of a block

// Returns the columns of a block of queries: as many as the vectors of the tile that is chosen for it have.
int64_t columns_for(int64_t queries);

// Keys and values as float32, the elements of a row side by side: copied where they are not so. Masks as numbers to add,
// [batch, head, key, query].
class Operands {
 public:
  // `mask_width`: queries, filled up to whole blocks. `is_dense`: rows are one after the other.
  Operands(const Geometry& geometry, int64_t mask_width, bool is_dense);

  int64_t elements() const { return (copied_ + masked_ + 15) / 16 * 16; }
  void load(float* memory) const;

  const float* keys(const float* memory, int64_t batch, int64_t group) const;
  const float* values(const float* memory, int64_t batch, int64_t group) const;
  int64_t key_stride() const { return is_copied_ ? g_.size : g_.k.strides[2]; }
  int64_t value_stride() const { return is_copied_ ? g_.value_size : g_.v.strides[2]; }
  const float* mask(const float* memory, int64_t batch, int64_t head) const;  // null: none
  int64_t mask_width() const { return mask_width_; }

 private:
  void copy_keys(float* memory) const;
  void transpose_mask(float* memory) const;
  int64_t rows() const { return g_.batch * g_.groups * g_.keys; }

  const Geometry& g_;
  int64_t mask_width_;
  bool is_copied_;
  int64_t copied_ = 0, masked_ = 0;
};

// to[column, row] = scale * from[row, column]
void transpose(const float* from, int64_t stride, int64_t rows, int64_t columns, float scale, float* to, int64_t to_stride);

// Attention of one query of each head.
uint64_t decode_workspace_bytes(const Geometry& geometry);
void decode(const Geometry& geometry, void* workspace, uint64_t bytes);

// What the scores of some queries are made of.
struct Scores {
  int64_t size;
  const float* k;
  int64_t k_stride;
  const float* mask;       // [key, column] to add; null: none
  int64_t mask_stride;
  int64_t all_until;       // every query takes the keys before it
  const float* queries;    // [size, column], scaled
  int64_t used;            // columns that are queries
  const float* positions;  // of each column
  float* scores;           // [kKeys, column]
};

template <int kBytes, int kVectors>
struct ScoreLoop {
  using Lanes = typename pointwise::VectorOf<float, kBytes>::type;
  using Unaligned = typename pointwise::VectorOf<float, kBytes>::unaligned;
  using V = pointwise::Value<Lanes>;
  static constexpr int64_t kLanes = kBytes / sizeof(float), kColumns = kVectors * kLanes;
  static constexpr double kNever = -std::numeric_limits<double>::infinity();

  static NPU_INLINE V load(const float* from) { return V::of(*reinterpret_cast<const Unaligned*>(from)); }
  static NPU_INLINE void store(V value, float* to) { *reinterpret_cast<Unaligned*>(to) = value.raw; }

  // An exponential that would be no normal number is 0: products with such numbers take many times as long. Of numbers up to 0.
  static NPU_INLINE V exponential(V x) { return exp_of_negative(x); }

  // Products of matrices. to[row, column] = initial[row, column] + the products of `depth` numbers of each row, `step` apart,
  // and the rows of a panel.
  struct Products {
    float* to;
    int64_t to_stride;
    const float* initial;
    int64_t initial_stride;
    const float* from;
    int64_t from_stride, step;
    const float* panel;
    int64_t panel_stride, depth;
  };

  template <int kRows>
  static NPU_INLINE void compute_rows(const Products& p, int64_t row) {
    gemm::Tile<float, kBytes, kRows, kVectors> tile(p.initial + row * p.initial_stride, p.initial_stride);
    const float* rows[kRows];
#pragma GCC unroll 8
    for (int i = 0; i < kRows; ++i) rows[i] = p.from + (row + i) * p.from_stride;
    tile.add(rows, p.panel, p.panel_stride, p.depth, p.step);
    tile.finish();
    tile.store(p.to + row * p.to_stride, p.to_stride);
  }

  static NPU_INLINE void compute(const Products& p, int64_t count) {
    constexpr int rows = gemm::kTileRows;
    int64_t row = 0;
    for (; row + rows <= count; row += rows) compute_rows<rows>(p, row);
    for (; row + 2 <= count; row += 2) compute_rows<2>(p, row);
    if (row < count) compute_rows<1>(p, row);
  }

  // Makes the scores of `count` keys from `first`; of keys that come after their query -infinity.
  static NPU_INLINE void make(const Scores& s, int64_t first, int64_t count) {
    constexpr float none[kColumns] = {};
    compute({s.scores, kColumns, s.mask ? s.mask + first * s.mask_stride : none, s.mask ? s.mask_stride : 0,
             s.k + first * s.k_stride, s.k_stride, 1, s.queries, kColumns, s.size}, count);
    if (s.all_until >= first + count) return;
    for (int64_t row = 0; row < count; ++row) {
      for (int64_t column = 0; column < kColumns; column += kLanes) {
        float* at = s.scores + row * kColumns + column;
        store(select(load(s.positions + column) < V(double(first + row)), V(kNever), load(at)), at);
      }
    }
  }
};

// True if the mask hides so many keys from all these queries: then they need not be read.
inline bool is_hidden(const Scores& s, int64_t first, int64_t count) {
  if (!s.mask) return false;
  for (int64_t row = first; row < first + count; ++row) {
    const float* const mask = s.mask + row * s.mask_stride;
    for (int64_t query = 0; query < s.used; ++query) {
      if (mask[query] != -std::numeric_limits<float>::infinity()) return false;
    }
  }
  return true;
}

// Runs Loop<kBytes, kVectors>::run(argument) for blocks of so many columns.
template <template <int, int> class Loop, class Argument>
void run_columns(int64_t columns, const Argument* argument) {
#if defined(__x86_64__)
  if (has_avx512()) {
    if (columns > 32) return run_with_avx512<Loop<64, 4>>(argument);
    return columns > 16 ? run_with_avx512<Loop<64, 2>>(argument) : run_with_avx512<Loop<64, 1>>(argument);
  }
  if (has_avx2()) return columns > 8 ? run_with_avx2<Loop<32, 2>>(argument) : run_with_avx2<Loop<32, 1>>(argument);
#endif
  Loop<16, 2>::run(argument);
}

}  // namespace npu::attention
