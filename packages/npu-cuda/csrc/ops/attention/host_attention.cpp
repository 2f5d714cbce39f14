// Attention on the host. Scores are computed transposed, [keys, queries]: the rows of a tile are keys, which are read where
// they are, its columns queries. So the largest score and the sum of a query are found by vectors of queries, and the
// scores are in turn the panel of the product with the values. A block of queries, its scores and its sums stay in the
// first two caches.
#include <algorithm>
#include <atomic>
#include <limits>

#include "ops/attention/attention.h"
#include "ops/gemm/tile.h"
#include "ops/host_simd.h"
#include "ops/pointwise/host_rows.h"
#include "ops/pointwise/vector_math.h"
#include "ops/threads.h"

namespace npu::attention {
namespace {

constexpr int64_t kKeys = 96;    // of a block
constexpr int64_t kItem = 1024;  // parallel_for gives threads multiples of as many
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Some queries of the heads of a group.
struct Block {
  int64_t keys, size, value_size;
  const float* k;
  int64_t k_stride;
  const float* v;
  int64_t v_stride;
  const float* mask;       // [key, column] to add; null: none
  int64_t mask_stride;
  bool is_causal;
  const float* queries;    // [size, column], scaled
  const float* positions;  // of each column
  float* scores;           // [kKeys, column]
  float* sums;             // [value_size, column]
  float* most;             // of each column: the largest score, then the logarithm of the sum
  float* total;            // of each column: the sum of exponentials
};

template <int kBytes, int kVectors>
struct AttendBlock {
  using Lanes = typename pointwise::VectorOf<float, kBytes>::type;
  using Unaligned = typename pointwise::VectorOf<float, kBytes>::unaligned;
  using V = pointwise::Value<Lanes>;
  static constexpr int64_t kLanes = kBytes / sizeof(float), kColumns = kVectors * kLanes;

  static NPU_INLINE V load(const float* from) { return V::of(*reinterpret_cast<const Unaligned*>(from)); }
  static NPU_INLINE void store(V value, float* to) { *reinterpret_cast<Unaligned*>(to) = value.raw; }

  template <int kRows>
  static NPU_INLINE void score(const Block& b, int64_t first, int64_t row) {
    constexpr float none[kColumns] = {};
    const float* initial = b.mask ? b.mask + (first + row) * b.mask_stride : none;
    gemm::Tile<float, kBytes, kRows, kVectors> tile(initial, b.mask ? b.mask_stride : 0);
    const float* keys[kRows];
    for (int i = 0; i < kRows; ++i) keys[i] = b.k + (first + row + i) * b.k_stride;
    tile.add(keys, b.queries, kColumns, b.size);
    tile.finish();
    tile.store(b.scores + row * kColumns, kColumns);
  }

  template <int kRows>
  static NPU_INLINE void add_values(const Block& b, int64_t first, int64_t count, int64_t element) {
    gemm::Tile<float, kBytes, kRows, kVectors> tile(b.sums + element * kColumns, kColumns);
    const float* values[kRows];
    for (int i = 0; i < kRows; ++i) values[i] = b.v + first * b.v_stride + element + i;
    tile.add(values, b.scores, kColumns, count, b.v_stride);
    tile.finish();
    tile.store(b.sums + element * kColumns, kColumns);
  }

  // Scores of keys that come after their query are -infinity.
  static NPU_INLINE void hide_later_keys(const Block& b, int64_t first, int64_t count) {
    for (int64_t row = 0; row < count; ++row) {
      for (int64_t column = 0; column < kColumns; column += kLanes) {
        float* at = b.scores + row * kColumns + column;
        store(select(load(b.positions + column) < V(double(first + row)), V(-kInfinity), load(at)), at);
      }
    }
  }

  // An exponential that would be no normal number is 0: products with such numbers take many times as long.
  static NPU_INLINE V exponential(V x) { return select(x < V(-87.0), V(0.0), exp(x)); }

  // Makes scores exponentials, and fits the sums so far to the new largest score.
  static NPU_INLINE void normalize(const Block& b, int64_t count) {
    for (int64_t column = 0; column < kColumns; column += kLanes) {
      const V before = load(b.most + column);
      V most = before;
      for (int64_t row = 0; row < count; ++row) most = maximum(most, load(b.scores + row * kColumns + column));
      const V shift = select(most == V(-kInfinity), V(0.0), most);
      const V factor = exponential(before - shift);
      V total = load(b.total + column) * factor;
      for (int64_t row = 0; row < count; ++row) {
        float* at = b.scores + row * kColumns + column;
        const V weight = exponential(load(at) - shift);
        total = total + weight;
        store(weight, at);
      }
      store(most, b.most + column);
      store(total, b.total + column);
      for (int64_t element = 0; element < b.value_size; ++element) {
        float* at = b.sums + element * kColumns + column;
        store(load(at) * factor, at);
      }
    }
  }

  static NPU_INLINE void finish(const Block& b) {
    for (int64_t column = 0; column < kColumns; column += kLanes) {
      const V total = load(b.total + column), factor = select(total == V(0.0), V(0.0), V(1.0) / total);
      for (int64_t element = 0; element < b.value_size; ++element) {
        float* at = b.sums + element * kColumns + column;
        store(load(at) * factor, at);
      }
      store(load(b.most + column) + log(total), b.most + column);
    }
  }

  static NPU_INLINE void run(const Block* block) {
    const Block& b = *block;
    constexpr int rows = gemm::kTileRows;
    std::fill(b.most, b.most + kColumns, -kInfinity);
    std::fill(b.total, b.total + kColumns, 0.0f);
    std::fill(b.sums, b.sums + b.value_size * kColumns, 0.0f);
    for (int64_t first = 0; first < b.keys; first += kKeys) {
      const int64_t count = std::min(kKeys, b.keys - first);
      int64_t row = 0;
      for (; row + rows <= count; row += rows) score<rows>(b, first, row);
      for (; row < count; ++row) score<1>(b, first, row);
      if (b.is_causal) hide_later_keys(b, first, count);
      normalize(b, count);
      int64_t element = 0;
      for (; element + rows <= b.value_size; element += rows) add_values<rows>(b, first, count, element);
      for (; element + 2 <= b.value_size; element += 2) add_values<2>(b, first, count, element);
      if (element < b.value_size) add_values<1>(b, first, count, element);
    }
    finish(b);
  }
};

void attend(const Block& block, int64_t columns) {
#if defined(__x86_64__)
  if (has_avx512()) {
    if (columns > 32) return run_with_avx512<AttendBlock<64, 4>>(&block);
    return columns > 16 ? run_with_avx512<AttendBlock<64, 2>>(&block) : run_with_avx512<AttendBlock<64, 1>>(&block);
  }
  if (has_avx2()) return columns > 8 ? run_with_avx2<AttendBlock<32, 2>>(&block) : run_with_avx2<AttendBlock<32, 1>>(&block);
#endif
  AttendBlock<16, 2>::run(&block);
}

// Of a block: as many as the vectors of the tile that is chosen for so many queries.
int64_t columns_for(int64_t queries) {
  const int64_t bytes = vector_bytes();
  if (bytes == 64) return queries > 32 ? 64 : queries > 16 ? 32 : 16;
  return bytes == 32 ? (queries > 8 ? 16 : 8) : 8;
}

// How a call is cut into blocks, and its workspace.
class Call {
 public:
  explicit Call(const OpCall& call) : g_(geometry_of(call)), workspace_(static_cast<float*>(call.workspace)) {
    // Heads of a group have the same keys: without a mask they are queries of one block, as in decoding.
    joined_ = g_.has_mask ? 1 : g_.heads_of_group();
    columns_ = columns_for(joined_ * g_.queries);
    blocks_ = (joined_ * g_.queries + columns_ - 1) / columns_;
    is_copied_ = g_.dtype != kFloat32 || (g_.k.strides[3] != 1 && g_.size > 1) || (g_.v.strides[3] != 1 && g_.value_size > 1);
    if (is_copied_) copied_ = g_.batch * g_.groups * g_.keys * (g_.size + g_.value_size);
    if (g_.has_mask) masked_ = g_.mask_sizes[0] * g_.mask_sizes[1] * g_.keys * mask_width();
    slice_ = (g_.size + g_.value_size + kKeys + 3) * columns_ + std::max(g_.size, g_.value_size);
    slice_ = (slice_ + 15) / 16 * 16;
    shared_ = (copied_ + masked_ + 15) / 16 * 16;
  }

  uint64_t workspace_bytes() const { return uint64_t(sizeof(float) * (shared_ + thread_count() * slice_)); }

  void run(uint64_t workspace_bytes) const {
    if (is_copied_) copy_keys();
    if (g_.has_mask) transpose_mask();
    const int64_t slices = (int64_t(workspace_bytes / sizeof(float)) - shared_) / slice_;
    const int64_t items = g_.batch * g_.heads / joined_ * blocks_;
    std::atomic<int64_t> taken{0};
    parallel_for(items * kItem, (items + slices - 1) / slices * kItem, [&](int64_t begin, int64_t end) {
      float* const slice = workspace_ + shared_ + taken++ * slice_;
      for (int64_t item = begin / kItem; item < end / kItem; ++item) run_block(item, slice);
    });
  }

 private:
  int64_t mask_width() const { return blocks_ * columns_; }
  int64_t item() const { return item_bytes(g_.dtype); }

  void copy_keys() const;
  void transpose_mask() const;
  void run_block(int64_t index, float* slice) const;

  Geometry g_;
  float* workspace_;
  int64_t joined_, columns_, blocks_;
  bool is_copied_;
  int64_t copied_ = 0, masked_ = 0, shared_, slice_;
};

// Keys and values as float32, the elements of a row side by side.
void Call::copy_keys() const {
  const pointwise::ReadRow read = pointwise::reader(pointwise::element_of(g_.dtype), pointwise::kFloat32);
  const int64_t rows = g_.batch * g_.groups * g_.keys;
  parallel_for(rows * kItem, 64 * kItem, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin / kItem; row < end / kItem; ++row) {
      const int64_t key = row % g_.keys, group = row / g_.keys % g_.groups, batch = row / g_.keys / g_.groups;
      read(g_.k.at(item(), batch, group, key), g_.k.strides[3], workspace_ + row * g_.size, g_.size);
      read(g_.v.at(item(), batch, group, key), g_.v.strides[3], workspace_ + rows * g_.size + row * g_.value_size, g_.value_size);
    }
  });
}

// [batch, head, key, query] of numbers to add.
void Call::transpose_mask() const {
  const auto element = g_.mask_is_truth ? pointwise::Element::Bool : pointwise::element_of(g_.dtype);
  const pointwise::ReadRow read = pointwise::reader(element, pointwise::kFloat32);
  const int64_t item = g_.mask_is_truth ? 1 : item_bytes(g_.dtype);
  const int64_t rows = g_.mask_sizes[0] * g_.mask_sizes[1] * g_.keys;
  parallel_for(rows * kItem, 64 * kItem, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin / kItem; row < end / kItem; ++row) {
      const int64_t key = row % g_.keys, head = row / g_.keys % g_.mask_sizes[1], batch = row / g_.keys / g_.mask_sizes[1];
      float* const to = workspace_ + copied_ + row * mask_width();
      read(g_.mask.at(item, batch, head) + key * g_.mask.strides[3] * item, g_.mask.strides[2], to, g_.queries);
      for (int64_t i = 0; g_.mask_is_truth && i < g_.queries; ++i) to[i] = to[i] != 0 ? 0.0f : -kInfinity;
      std::fill(to + g_.queries, to + mask_width(), 0.0f);
    }
  });
}

void Call::run_block(int64_t index, float* slice) const {
  const int64_t first = index % blocks_ * columns_, joined = index / blocks_;  // the first query of a head or group
  const int64_t head = joined * joined_ % g_.heads, batch = joined * joined_ / g_.heads;
  const int64_t group = head / g_.heads_of_group(), count = std::min(columns_, joined_ * g_.queries - first);
  float* const queries = slice;
  float* const scores = queries + g_.size * columns_;
  float* const sums = scores + kKeys * columns_;
  float* const most = sums + g_.value_size * columns_;
  float* const total = most + columns_;
  float* const positions = total + columns_;
  float* const row = positions + columns_;
  const auto element = pointwise::element_of(g_.dtype);
  const pointwise::ReadRow read = pointwise::reader(element, pointwise::kFloat32);
  int64_t last = 0;
  for (int64_t column = 0; column < columns_; ++column) {
    const int64_t at = first + column, query = at % g_.queries;
    positions[column] = column < count ? float(query) : kInfinity;
    if (column < count) last = std::max(last, query);
    if (column < count) read(g_.q.at(item(), batch, head + at / g_.queries, query), g_.q.strides[3], row, g_.size);
    for (int64_t i = 0; i < g_.size; ++i) queries[i * columns_ + column] = column < count ? row[i] * g_.scale : 0.0f;
  }
  const int64_t rows = g_.batch * g_.groups * g_.keys, place = (batch * g_.groups + group) * g_.keys;
  Block block{g_.is_causal ? std::min(g_.keys, last + 1) : g_.keys, g_.size, g_.value_size,
              is_copied_ ? workspace_ + place * g_.size : reinterpret_cast<float*>(g_.k.at(item(), batch, group)),
              is_copied_ ? g_.size : g_.k.strides[2],
              is_copied_ ? workspace_ + rows * g_.size + place * g_.value_size : reinterpret_cast<float*>(g_.v.at(item(), batch, group)),
              is_copied_ ? g_.value_size : g_.v.strides[2],
              nullptr, mask_width(), g_.is_causal, queries, positions, scores, sums, most, total};
  if (g_.has_mask) {
    const int64_t mask_batch = g_.mask_sizes[0] == 1 ? 0 : batch, mask_head = g_.mask_sizes[1] == 1 ? 0 : head;
    block.mask = workspace_ + copied_ + (mask_batch * g_.mask_sizes[1] + mask_head) * g_.keys * mask_width() + first;
  }
  attend(block, columns_);
  const pointwise::WriteRow write = pointwise::writer(element, pointwise::kFloat32);
  for (int64_t column = 0; column < count; ++column) {
    const int64_t at = first + column, query = at % g_.queries, own_head = head + at / g_.queries;
    for (int64_t i = 0; i < g_.value_size; ++i) row[i] = sums[i * columns_ + column];
    write(row, g_.o.at(item(), batch, own_head, query), g_.o.strides[3], g_.value_size);
    if (g_.has_lse) *reinterpret_cast<float*>(g_.lse.at(sizeof(float), batch, own_head, query)) = most[column];
  }
}

Status launch(const OpCall& call) {
  if (call.outputs[0].numel > 0) Call(call).run(call.workspace_bytes);
  return {};
}

uint64_t workspace_bytes(const OpCall& call) { return Call(call).workspace_bytes(); }

}  // namespace

std::vector<KernelPtr> host_kernels() {
  return {make_kernel({kAttention, "attention.host", DeviceType::Host}, {check, launch, cost, workspace_bytes})};
}

}  // namespace npu::attention
