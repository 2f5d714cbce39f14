// Attention on the host. Scores are computed transposed, [keys, queries]: the rows of a tile are keys, which are read where
// they are, its columns queries. So the largest score and the sum of a query are found by vectors of queries, and the
// scores are in turn the panel of the product with the values. A block of queries, its scores and its sums stay in the
// first two caches.
#include <algorithm>
#include <limits>

#include "ops/attention/host_operands.h"
#include "ops/threads.h"

namespace npu::attention {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr double kManyOperations = 1e6;  // below it threads take longer to wake than to work

// Values that span no more are read where they are. Rows further apart, by a power of two, would be in few sets of the
// first cache.
constexpr int64_t kNearNumbers = 8192;

// Rows of a mask whose distance is a multiple of so many numbers would be in few sets of the first cache.
constexpr int64_t kAlias = 256;

// The distance of rows of a mask that have so many numbers.
int64_t apart(int64_t width) { return width % kAlias == 0 ? width + 16 : width; }

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
      // Not of NaN: a score that is NaN makes the total NaN.
      for (int64_t row = 0; row < count; ++row) most = at_least(most, load(scores + row * kColumns));
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
      const float* values = b.v + first * b.v_stride;
      int64_t stride = b.v_stride;
      if (count * stride > kNearNumbers) {
        for (int64_t key = 0; key < count; ++key) std::copy_n(values + key * stride, b.value_size, b.values + key * b.value_size);
        values = b.values;
        stride = b.value_size;
      }
      Base::compute({b.sums, kColumns, b.sums, kColumns, values, 1, stride, b.scores.scores, kColumns, count}, b.value_size);
    }
    finish(b);
  }
};

// The queries of a block: `count` from `first` on, of `head` and of those after it.
struct BlockPlace {
  int64_t batch, head, first, count;
};

// How a call is cut into blocks, and its workspace.
class Call {
 public:
  // Heads of a group have the same keys: without a mask they are queries of one block.
  explicit Call(const OpCall& call)
      : g_(geometry_of(call)), joined_(g_.has_mask ? 1 : g_.heads_of_group()), columns_(columns_for(joined_ * g_.queries)),
        blocks_((joined_ * g_.queries + columns_ - 1) / columns_), operands_(g_, apart(blocks_ * columns_), false) {
    const int64_t elements = (g_.size + g_.value_size + kKeys + 3 + widest()) * columns_ + kKeys * g_.value_size;
    slice_ = (elements + 15) / 16 * 16;
  }

  uint64_t workspace_bytes() const { return uint64_t(sizeof(float) * (operands_.elements() + thread_count() * slice_)); }

  void run(const OpCall& call) const {
    auto* const memory = static_cast<float*>(call.workspace);
    operands_.load(memory);
    const int64_t slices = (int64_t(call.workspace_bytes / sizeof(float)) - operands_.elements()) / slice_;
    const int64_t items = g_.batch * g_.heads / joined_ * blocks_;
    parallel_tasks(items, operations() < kManyOperations ? 1 : slices, [&](int64_t item, int slice) {
      run_block(item, memory, memory + operands_.elements() + slice * slice_);
    });
  }

 private:
  int64_t widest() const { return std::max(g_.size, g_.value_size); }
  // An exponential is about as many as a product of 32 numbers.
  double operations() const {
    return 2.0 * double(g_.batch * g_.heads * g_.queries) * double(g_.keys) * double(g_.size + g_.value_size + 32);
  }
  void run_block(int64_t index, const float* memory, float* slice) const;
  void read_queries(const BlockPlace& place, float* rows, int64_t columns, float* queries) const;
  void write_results(const BlockPlace& place, const float* sums, int64_t columns, float* rows) const;
  float* matrix_at(const View& view, const BlockPlace& place) const;
  template <class F>
  void each_row(const BlockPlace& place, F f) const;

  Geometry g_;
  int64_t joined_, columns_, blocks_, slice_;
  Operands operands_;
};

// Calls f(column, head, query).
template <class F>
void Call::each_row(const BlockPlace& place, F f) const {
  int64_t head = place.head + place.first / g_.queries, query = place.first % g_.queries;
  for (int64_t column = 0; column < place.count; ++column) {
    f(column, head, query);
    if (++query == g_.queries) query = 0, ++head;
  }
}

// The rows of a block where they are the rows of a matrix of numbers, which are its third stride apart; else null.
float* Call::matrix_at(const View& view, const BlockPlace& place) const {
  const int64_t query = place.first % g_.queries;
  if (g_.dtype != kFloat32 || view.strides[3] != 1 || query + place.count > g_.queries) return nullptr;
  return reinterpret_cast<float*>(view.at(sizeof(float), place.batch, place.head + place.first / g_.queries, query));
}

void Call::read_queries(const BlockPlace& place, float* rows, int64_t columns, float* queries) const {
  if (place.count < columns) std::fill(queries, queries + g_.size * columns, 0.0f);
  if (const float* const matrix = matrix_at(g_.q, place)) {
    return transpose(matrix, g_.q.strides[2], place.count, g_.size, g_.scale, queries, columns);
  }
  const pointwise::ReadRow read = pointwise::reader(pointwise::element_of(g_.dtype), pointwise::kFloat32);
  each_row(place, [&](int64_t column, int64_t head, int64_t query) {
    read(g_.q.at(item_bytes(g_.dtype), place.batch, head, query), g_.q.strides[3], rows + column * g_.size, g_.size);
  });
  transpose(rows, g_.size, place.count, g_.size, g_.scale, queries, columns);
}

void Call::write_results(const BlockPlace& place, const float* sums, int64_t columns, float* rows) const {
  if (float* const matrix = matrix_at(g_.o, place)) {
    return transpose(sums, columns, g_.value_size, place.count, 1.0f, matrix, g_.o.strides[2]);
  }
  transpose(sums, columns, g_.value_size, place.count, 1.0f, rows, g_.value_size);
  const pointwise::WriteRow write = pointwise::writer(pointwise::element_of(g_.dtype), pointwise::kFloat32);
  each_row(place, [&](int64_t column, int64_t head, int64_t query) {
    char* const to = g_.o.at(item_bytes(g_.dtype), place.batch, head, query);
    write(rows + column * g_.value_size, to, g_.o.strides[3], g_.value_size);
  });
}

void Call::run_block(int64_t index, const float* memory, float* slice) const {
  const int64_t first = index % blocks_ * columns_, joined = index / blocks_;  // the first query of a head or group
  const BlockPlace place{joined * joined_ / g_.heads, joined * joined_ % g_.heads, first,
                         std::min(columns_, joined_ * g_.queries - first)};
  const int64_t group = place.head / g_.heads_of_group(), columns = columns_for(place.count);
  float* const queries = slice;
  float* const scores = queries + g_.size * columns;
  float* const sums = scores + kKeys * columns;
  float* const most = sums + g_.value_size * columns;
  float* const total = most + columns;
  float* const positions = total + columns;
  float* const rows = positions + columns;  // of queries, then of results
  float* const values = rows + widest() * columns;
  read_queries(place, rows, columns, queries);
  std::fill(positions, positions + columns, kInfinity);
  int64_t earliest = g_.queries, last = 0;
  each_row(place, [&](int64_t column, int64_t, int64_t query) {
    positions[column] = float(query);
    earliest = std::min(earliest, query);
    last = std::max(last, query);
  });
  const float* const mask = operands_.mask(memory, place.batch, place.head);
  const Block block{{g_.size, operands_.keys(memory, place.batch, group), operands_.key_stride(),
                     mask ? mask + first : nullptr, operands_.mask_width(), g_.is_causal ? earliest + 1 : g_.keys, queries,
                     place.count, positions, scores},
                    g_.is_causal ? std::min(g_.keys, last + 1) : g_.keys, g_.value_size,
                    operands_.values(memory, place.batch, group), operands_.value_stride(), values, sums, most, total};
  run_columns<AttendBlock>(columns, &block);
  write_results(place, sums, columns, rows);
  if (!g_.has_lse) return;
  each_row(place, [&](int64_t column, int64_t head, int64_t query) {
    *reinterpret_cast<float*>(g_.lse.at(sizeof(float), place.batch, head, query)) = most[column];
  });
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
