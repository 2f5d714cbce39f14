// Attention on the host. Scores are computed transposed, [keys, queries]: the rows of a tile are keys, which are read where
// they are, its columns queries. So the largest score and the sum of a query are found by vectors of queries, and the
// scores are in turn the panel of the product with the values. A block of queries, its scores and its sums stay in the
// first two caches.
#include <algorithm>
#include <atomic>
#include <limits>

#include "ops/attention/host_operands.h"
#include "ops/threads.h"

namespace npu::attention {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Some queries of the heads of a group.
struct Block {
  Scores scores;
  int64_t keys, value_size;
  const float* v;
  int64_t v_stride;
  float* values;  // [kKeys, value_size]: those of a block of keys, side by side
  float* sums;   // [value_size, column]
  float* most;   // of each column: the largest score, then the logarithm of the sum
  float* total;  // of each column: the sum of exponentials
};

template <int kBytes, int kVectors>
struct AttendBlock : ScoreLoop<kBytes, kVectors> {
  using Base = ScoreLoop<kBytes, kVectors>;
  using typename Base::V;
  using Base::exponential, Base::kColumns, Base::kLanes, Base::load, Base::store;

  // Makes scores exponentials, and fits the sums so far to the new largest score.
  static NPU_INLINE void normalize(const Block& b, int64_t count, bool is_first) {
    for (int64_t column = 0; column < kColumns; column += kLanes) {
      float* const scores = b.scores.scores + column;
      const V before = load(b.most + column);
      V most = before;
      for (int64_t row = 0; row < count; ++row) most = maximum(most, load(scores + row * kColumns));
      const V shift = select(most == V(-kInfinity), V(0.0), most);
      const V factor = exponential(before - shift);
      V total = load(b.total + column) * factor;
      for (int64_t row = 0; row < count; ++row) {
        const V weight = exponential(load(scores + row * kColumns) - shift);
        total = total + weight;
        store(weight, scores + row * kColumns);
      }
      store(most, b.most + column);
      store(total, b.total + column);
      if (!is_first) scale_sums(b, column, factor);
    }
  }

  static NPU_INLINE void scale_sums(const Block& b, int64_t column, V factor) {
    for (int64_t element = 0; element < b.value_size; ++element) {
      float* at = b.sums + element * kColumns + column;
      store(load(at) * factor, at);
    }
  }

  static NPU_INLINE void finish(const Block& b) {
    for (int64_t column = 0; column < kColumns; column += kLanes) {
      const V total = load(b.total + column);
      scale_sums(b, column, select(total == V(0.0), V(0.0), V(1.0) / total));
      store(load(b.most + column) + log(total), b.most + column);
    }
  }

  static NPU_INLINE void run(const Block* block) {
    const Block& b = *block;
    std::fill(b.most, b.most + kColumns, -kInfinity);
    std::fill(b.total, b.total + kColumns, 0.0f);
    std::fill(b.sums, b.sums + b.value_size * kColumns, 0.0f);
    for (int64_t first = 0; first < b.keys; first += kKeys) {
      const int64_t count = std::min(kKeys, b.keys - first);
      if (is_hidden(b.scores, first, count)) continue;
      Base::make(b.scores, first, count);
      normalize(b, count, first == 0);
      // Rows that are a power of two apart would be in few sets of the first cache.
      for (int64_t key = 0; key < count; ++key) std::copy_n(b.v + (first + key) * b.v_stride, b.value_size, b.values + key * b.value_size);
      Base::compute({b.sums, kColumns, b.sums, kColumns, b.values, 1, b.value_size, b.scores.scores, kColumns, count}, b.value_size);
    }
    finish(b);
  }
};

// How a call is cut into blocks, and its workspace.
class Call {
 public:
  // Heads of a group have the same keys: without a mask they are queries of one block.
  explicit Call(const OpCall& call)
      : g_(geometry_of(call)), joined_(g_.has_mask ? 1 : g_.heads_of_group()), columns_(columns_for(joined_ * g_.queries)),
        blocks_((joined_ * g_.queries + columns_ - 1) / columns_), operands_(g_, blocks_ * columns_, false) {
    const int64_t elements = (g_.size + g_.value_size + kKeys + 3 + widest()) * columns_ + kKeys * g_.value_size;
    slice_ = (elements + 15) / 16 * 16;
  }

  uint64_t workspace_bytes() const { return uint64_t(sizeof(float) * (operands_.elements() + thread_count() * slice_)); }

  void run(const OpCall& call) const {
    auto* const memory = static_cast<float*>(call.workspace);
    operands_.load(memory);
    const int64_t slices = (int64_t(call.workspace_bytes / sizeof(float)) - operands_.elements()) / slice_;
    const int64_t items = g_.batch * g_.heads / joined_ * blocks_;
    std::atomic<int64_t> taken{0};
    parallel_for(items * kItem, (items + slices - 1) / slices * kItem, [&](int64_t begin, int64_t end) {
      float* const slice = memory + operands_.elements() + taken++ * slice_;
      for (int64_t item = begin / kItem; item < end / kItem; ++item) run_block(item, memory, slice);
    });
  }

 private:
  int64_t widest() const { return std::max(g_.size, g_.value_size); }
  void run_block(int64_t index, const float* memory, float* slice) const;

  Geometry g_;
  int64_t joined_, columns_, blocks_, slice_;
  Operands operands_;
};

void Call::run_block(int64_t index, const float* memory, float* slice) const {
  const int64_t first = index % blocks_ * columns_, joined = index / blocks_;  // the first query of a head or group
  const int64_t head = joined * joined_ % g_.heads, batch = joined * joined_ / g_.heads;
  const int64_t group = head / g_.heads_of_group(), count = std::min(columns_, joined_ * g_.queries - first);
  const int64_t item = item_bytes(g_.dtype), columns = columns_for(count);
  float* const queries = slice;
  float* const scores = queries + g_.size * columns;
  float* const sums = scores + kKeys * columns;
  float* const most = sums + g_.value_size * columns;
  float* const total = most + columns;
  float* const positions = total + columns;
  float* const rows = positions + columns;  // of queries, then of results
  float* const values = rows + widest() * columns;
  const auto element = pointwise::element_of(g_.dtype);
  const pointwise::ReadRow read = pointwise::reader(element, pointwise::kFloat32);
  std::fill(queries, queries + g_.size * columns, 0.0f);
  std::fill(positions, positions + columns, kInfinity);
  int64_t earliest = g_.queries, last = 0;
  for (int64_t column = 0; column < count; ++column) {
    const int64_t at = first + column, query = at % g_.queries;
    positions[column] = float(query);
    earliest = std::min(earliest, query);
    last = std::max(last, query);
    read(g_.q.at(item, batch, head + at / g_.queries, query), g_.q.strides[3], rows + column * g_.size, g_.size);
  }
  transpose(rows, g_.size, count, g_.size, g_.scale, queries, columns);
  const float* const mask = operands_.mask(memory, batch, head);
  const Block block{{g_.size, operands_.keys(memory, batch, group), operands_.key_stride(), mask ? mask + first : nullptr,
                     operands_.mask_width(), g_.is_causal ? earliest + 1 : g_.keys, queries, count, positions, scores},
                    g_.is_causal ? std::min(g_.keys, last + 1) : g_.keys, g_.value_size,
                    operands_.values(memory, batch, group), operands_.value_stride(), values, sums, most, total};
  run_columns<AttendBlock>(columns, &block);
  transpose(sums, columns, g_.value_size, count, 1.0f, rows, g_.value_size);
  const pointwise::WriteRow write = pointwise::writer(element, pointwise::kFloat32);
  for (int64_t column = 0; column < count; ++column) {
    const int64_t at = first + column, query = at % g_.queries, own_head = head + at / g_.queries;
    write(rows + column * g_.value_size, g_.o.at(item, batch, own_head, query), g_.o.strides[3], g_.value_size);
    if (g_.has_lse) *reinterpret_cast<float*>(g_.lse.at(sizeof(float), batch, own_head, query)) = most[column];
  }
}

Status launch(const OpCall& call) {
  const bool has_numbers = call.outputs[0].numel > 0 || (call.num_outputs == 2 && call.outputs[1].numel > 0);
  if (!has_numbers) return {};
  const Geometry geometry = geometry_of(call);
  if (geometry.queries == 1) decode(geometry, call.workspace, call.workspace_bytes);
  else Call(call).run(call);
  return {};
}

uint64_t workspace_bytes(const OpCall& call) {
  const Geometry geometry = geometry_of(call);
  return geometry.queries == 1 ? decode_workspace_bytes(geometry) : Call(call).workspace_bytes();
}

}  // namespace

std::vector<KernelPtr> host_kernels() {
  return {make_kernel({kAttention, "attention.host", DeviceType::Host}, {check, launch, cost, workspace_bytes}),
          gradient_host_kernel()};
}

}  // namespace npu::attention
