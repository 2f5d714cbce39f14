// The gradients of attention on the host, in the terms of host_attention.cpp: scores are [keys, queries]. They are computed
// again from q, k and lse. With p = exp(score - lse), dp = v do^T and delta = sum(do * o) of each query,
// ds = scale * p * (dp - delta), and then dv = p do, dk = ds q, dq = ds^T k (Dao et al., FlashAttention, 2022). A thread
// has all queries of a head, and adds to dk and dv in their order: the results do not depend on the number of threads.
#include <algorithm>
#include <limits>

#include "ops/attention/host_operands.h"
#include "ops/threads.h"

namespace npu::attention {
namespace {

// Rows of floats, in memory of their own or where they are in a tensor.
struct Rows {
  const float* data;
  int64_t stride;
};

// Some queries of a head. `wide` and `value_wide` are size and value_size, filled up to whole vectors.
struct Block {
  Scores scores;
  int64_t keys, value_size, wide, value_wide;
  float scale;
  const float* v;
  int64_t v_stride;
  const float* lse;             // of each column
  float* delta;                 // of each column
  Rows query_rows;              // [column, wide]
  const float* gradients;       // [value_size, column] of do
  const float* results;         // [value_size, column] of o
  Rows gradient_rows;           // [column, value_wide]
  float* score_gradients;       // [kKeys, column]
  float* query_gradients;       // [size, column]
  float* key_gradients;         // [keys, wide], added to
  float* value_gradients;       // [keys, value_wide], added to
};

template <int kBytes, int kVectors>
struct DifferentiateBlock : ScoreLoop<kBytes, kVectors> {
  using Base = ScoreLoop<kBytes, kVectors>;
  using typename Base::V;
  using Base::kColumns, Base::kLanes, Base::load, Base::store;

  static NPU_INLINE void add_deltas(const Block& b) {
    for (int64_t column = 0; column < kColumns; column += kLanes) {
      V sum(0.0);
      for (int64_t at = column; at < b.value_size * kColumns; at += kColumns) {
        sum = fma(load(b.gradients + at), load(b.results + at), sum);
      }
      store(sum, b.delta + column);
    }
  }

  // Makes scores p, and the gradients of p those of the scores.
  static NPU_INLINE void differentiate(const Block& b, int64_t count) {
    for (int64_t column = 0; column < kColumns; column += kLanes) {
      const V lse = load(b.lse + column), delta = load(b.delta + column);
      for (int64_t row = 0; row < count; ++row) {
        float* const score = b.scores.scores + row * kColumns + column;
        float* const gradient = b.score_gradients + row * kColumns + column;
        const V exponent = load(score) - lse;  // above 0, if the logarithm is not that of these scores
        const V weight = select(exponent < V(-87.0), V(0.0), exp(exponent));
        store(weight, score);
        store(weight * (load(gradient) - delta) * V(double(b.scale)), gradient);
      }
    }
  }

  // to[key, element] += the products of `depth` numbers of the rows of scores and as many rows of queries.
  static NPU_INLINE void add(float* to, int64_t width, const float* scores, const Rows& rows, int64_t count, int64_t depth) {
    int64_t left = add_columns<kVectors>(to, width, scores, rows, count, depth, 0);
    if constexpr (kVectors > 2) left = add_columns<2>(to, width, scores, rows, count, depth, left);
    add_columns<1>(to, width, scores, rows, count, depth, left);
  }

  // From one column on, as many as vectors of a tile fit; returns the first that is left.
  template <int kTileVectors>
  static NPU_INLINE int64_t add_columns(float* to, int64_t width, const float* scores, const Rows& rows, int64_t count,
                                        int64_t depth, int64_t left) {
    using Loop = ScoreLoop<kBytes, kTileVectors>;
    for (; left + Loop::kColumns <= width; left += Loop::kColumns) {
      Loop::compute({to + left, width, to + left, width, scores, kColumns, 1, rows.data + left, rows.stride, depth}, count);
    }
    return left;
  }

  static NPU_INLINE void run(const Block* block) {
    const Block& b = *block;
    constexpr float none[kColumns] = {};
    std::fill(b.query_gradients, b.query_gradients + b.scores.size * kColumns, 0.0f);
    add_deltas(b);
    for (int64_t first = 0; first < b.keys; first += kKeys) {
      const int64_t count = std::min(kKeys, b.keys - first);
      if (is_hidden(b.scores, first, count)) continue;
      Base::make(b.scores, first, count);
      Base::compute({b.score_gradients, kColumns, none, 0, b.v + first * b.v_stride, b.v_stride, 1, b.gradients, kColumns,
                     b.value_size}, count);
      differentiate(b, count);
      const int64_t used = b.scores.used;
      add(b.value_gradients + first * b.value_wide, b.value_wide, b.scores.scores, b.gradient_rows, count, used);
      add(b.key_gradients + first * b.wide, b.wide, b.score_gradients, b.query_rows, count, used);
      Base::compute({b.query_gradients, kColumns, b.query_gradients, kColumns, b.scores.k + first * b.scores.k_stride, 1,
                     b.scores.k_stride, b.score_gradients, kColumns, count}, b.scores.size);
    }
  }
};

int64_t filled(int64_t size) { return (size + 15) / 16 * 16; }

// Rows that are a multiple of so many numbers apart would be in few sets of the first cache.
bool is_far(const View& rows) { return rows.strides[2] % 512 == 0; }

class Call {
 public:
  explicit Call(const OpCall& call)
      : g_(geometry_of_gradient(call)), columns_(columns_for(g_.queries)), blocks_((g_.queries + columns_ - 1) / columns_),
        wide_(filled(g_.size)), value_wide_(filled(g_.value_size)),
        operands_(g_, blocks_ * columns_, is_far(g_.k) || is_far(g_.v)) {
    const int64_t of_column = 2 * g_.size + 2 * wide_ + 2 * g_.value_size + 2 * value_wide_ + 2 * kKeys + 3;
    slice_ = (columns_ * of_column + g_.keys * (wide_ + value_wide_) + 15) / 16 * 16;
  }

  uint64_t workspace_bytes() const { return uint64_t(sizeof(float) * (operands_.elements() + thread_count() * slice_)); }

  void run(const OpCall& call) const {
    auto* const memory = static_cast<float*>(call.workspace);
    operands_.load(memory);
    const int64_t slices = (int64_t(call.workspace_bytes / sizeof(float)) - operands_.elements()) / slice_;
    const int64_t items = g_.batch * g_.heads;
    parallel_tasks(items, slices, [&](int64_t item, int slice) {
      run_head(item / g_.heads, item % g_.heads, memory, memory + operands_.elements() + slice * slice_);
    });
  }

 private:
  void run_head(int64_t batch, int64_t head, const float* memory, float* slice) const;
  void run_block(int64_t batch, int64_t head, int64_t first, const float* memory, float* slice) const;
  bool has_floats(const View& view) const { return g_.dtype == kFloat32 && view.strides[3] == 1; }
  Rows read(const View& view, int64_t batch, int64_t head, int64_t first, int64_t rows, int64_t size, float* copy) const;
  void write(const float* from, int64_t stride, const View& to, int64_t batch, int64_t head, int64_t first, int64_t rows,
             int64_t size) const;

  Geometry g_;
  int64_t columns_, blocks_, wide_, value_wide_, slice_;
  Operands operands_;
};

void Call::run_head(int64_t batch, int64_t head, const float* memory, float* slice) const {
  float* const key_gradients = slice;
  float* const value_gradients = key_gradients + g_.keys * wide_;
  std::fill(key_gradients, value_gradients + g_.keys * value_wide_, 0.0f);
  for (int64_t first = 0; first < g_.queries; first += columns_) run_block(batch, head, first, memory, slice);
  write(key_gradients, wide_, g_.d_k, batch, head, 0, g_.keys, g_.size);
  write(value_gradients, value_wide_, g_.d_v, batch, head, 0, g_.keys, g_.value_size);
}

void Call::run_block(int64_t batch, int64_t head, int64_t first, const float* memory, float* slice) const {
  const int64_t count = std::min(columns_, g_.queries - first), columns = columns_for(count);
  float* const key_gradients = slice;
  float* const value_gradients = key_gradients + g_.keys * wide_;
  float* const queries = value_gradients + g_.keys * value_wide_;
  float* const query_rows = queries + g_.size * columns;
  float* const gradients = query_rows + wide_ * columns;
  float* const gradient_rows = gradients + g_.value_size * columns;
  float* const results = gradient_rows + value_wide_ * columns;
  float* const result_columns = results + std::max(value_wide_, wide_) * columns;
  float* const scores = result_columns + g_.value_size * columns;
  float* const score_gradients = scores + kKeys * columns;
  float* const query_gradients = score_gradients + kKeys * columns;
  float* const lse = query_gradients + g_.size * columns;
  float* const delta = lse + columns;
  float* const positions = delta + columns;
  if (count < columns) std::fill(queries, scores, 0.0f);
  std::fill(positions, positions + columns, std::numeric_limits<float>::infinity());
  std::fill(lse, lse + columns, 0.0f);
  const Rows q = read(g_.q, batch, head, first, count, g_.size, query_rows);
  const Rows d_o = read(g_.d_o, batch, head, first, count, g_.value_size, gradient_rows);
  const Rows o = read(g_.o, batch, head, first, count, g_.value_size, results);
  for (int64_t column = 0; column < count; ++column) {
    const int64_t query = first + column;
    lse[column] = *reinterpret_cast<const float*>(g_.lse.at(sizeof(float), batch, head, query));
    // A query without keys has no gradients; its scores are -infinity, too.
    if (lse[column] == -std::numeric_limits<float>::infinity()) lse[column] = 0;
    positions[column] = float(query);
  }
  transpose(q.data, q.stride, count, g_.size, g_.scale, queries, columns);
  transpose(d_o.data, d_o.stride, count, g_.value_size, 1.0f, gradients, columns);
  transpose(o.data, o.stride, count, g_.value_size, 1.0f, result_columns, columns);
  const float* const mask = operands_.mask(memory, batch, head);
  const Block block{{g_.size, operands_.keys(memory, batch, head), operands_.key_stride(), mask ? mask + first : nullptr,
                     operands_.mask_width(), g_.is_causal ? first + 1 : g_.keys, queries, count, positions, scores},
                    g_.is_causal ? std::min(g_.keys, first + count) : g_.keys, g_.value_size, wide_, value_wide_, g_.scale,
                    operands_.values(memory, batch, head), operands_.value_stride(), lse, delta, q, gradients,
                    result_columns, d_o, score_gradients, query_gradients, key_gradients, value_gradients};
  run_columns<DifferentiateBlock>(columns, &block);
  if (has_floats(g_.d_q)) {
    auto* const to = reinterpret_cast<float*>(g_.d_q.at(sizeof(float), batch, head, first));
    return transpose(query_gradients, columns, g_.size, count, 1.0f, to, g_.d_q.strides[2]);
  }
  transpose(query_gradients, columns, g_.size, count, 1.0f, results, wide_);
  write(results, wide_, g_.d_q, batch, head, first, count, g_.size);
}

// Rows filled up with 0 to whole vectors: copied where they are not so.
Rows Call::read(const View& view, int64_t batch, int64_t head, int64_t first, int64_t rows, int64_t size, float* copy) const {
  const int64_t item = item_bytes(g_.dtype), wide = filled(size);
  if (has_floats(view) && size == wide) {
    return {reinterpret_cast<const float*>(view.at(item, batch, head, first)), view.strides[2]};
  }
  const pointwise::ReadRow read_row = pointwise::reader(pointwise::element_of(g_.dtype), pointwise::kFloat32);
  std::fill(copy, copy + rows * wide, 0.0f);
  for (int64_t row = 0; row < rows; ++row) {
    read_row(view.at(item, batch, head, first + row), view.strides[3], copy + row * wide, size);
  }
  return {copy, wide};
}

void Call::write(const float* from, int64_t stride, const View& to, int64_t batch, int64_t head, int64_t first, int64_t rows,
                 int64_t size) const {
  const pointwise::WriteRow write = pointwise::writer(pointwise::element_of(g_.dtype), pointwise::kFloat32);
  for (int64_t row = 0; row < rows; ++row) {
    write(from + row * stride, to.at(item_bytes(g_.dtype), batch, head, first + row), to.strides[3], size);
  }
}

Status launch(const OpCall& call) {
  const bool has_numbers = call.outputs[0].numel + call.outputs[1].numel + call.outputs[2].numel > 0;
  if (has_numbers) Call(call).run(call);
  return {};
}

uint64_t workspace_bytes(const OpCall& call) { return Call(call).workspace_bytes(); }

}  // namespace

KernelPtr gradient_host_kernel() {
  return make_kernel({kGradient, "attention_gradient.host", DeviceType::Host},
                     {check_gradient, launch, gradient_cost, workspace_bytes});
}

}  // namespace npu::attention
