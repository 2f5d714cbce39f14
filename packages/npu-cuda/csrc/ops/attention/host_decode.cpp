// Attention of one query of each head on the host, as in decoding. Nothing is transposed and keys are read once, in any dtype;
// those that a mask hides from every head of a group are not read at all, so the time does not depend on the length of a
// cache, but on the part of it that is in use.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>

#include "ops/attention/host_operands.h"
#include "ops/threads.h"

namespace npu::attention {
namespace {

constexpr int64_t kAtOnce = 4;   // keys of a step
constexpr int64_t kMasked = 64;  // keys whose masks are read at once
constexpr int64_t kAligned = 16;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

int64_t aligned(int64_t elements) { return (elements + kAligned - 1) / kAligned * kAligned; }

// Rows of keys or values, as numbers side by side: where they are, or copied with zeros after them.
struct Rows {
  const char* data;
  int64_t stride_bytes, element_stride, size, padded;
  pointwise::ReadRow read;  // null: they are numbers already
  float* copies;            // [kAtOnce, padded]

  void get(const int32_t* keys, int64_t count, const float** rows) const {
    for (int64_t i = 0; i < kAtOnce; ++i) {
      const char* at = data + keys[std::min(i, count - 1)] * stride_bytes;
      rows[i] = reinterpret_cast<const float*>(at);
      if (!read) continue;
      if (i < count) read(at, element_stride, copies + i * padded, size);
      rows[i] = copies + std::min(i, count - 1) * padded;
    }
  }
};

// The queries of a group.
struct Decode {
  int64_t heads, count, width;  // of keys that are taken, and of a row of scores
  const int32_t* taken;
  Rows k, v;
  const float* queries;  // [heads, k.padded], scaled
  float* scores;         // [heads, width]: what masks add
  float* sums;           // [heads, v.padded]
  float* totals;         // [heads]: the sums of exponentials
  float* logarithms;     // [heads]: of these sums
};

template <int kBytes>
struct DecodeLoop : ScoreLoop<kBytes, 1> {
  using Base = ScoreLoop<kBytes, 1>;
  using typename Base::V;
  using Base::exponential, Base::kLanes, Base::load, Base::store;

  static NPU_INLINE float sum(V value) {
    float lanes[kLanes];
    store(value, lanes);
    for (int64_t width = kLanes / 2; width > 0; width /= 2) {
      for (int64_t i = 0; i < width; ++i) lanes[i] += lanes[i + width];
    }
    return lanes[0];
  }

  static NPU_INLINE void add_scores(const Decode& d, int64_t first) {
    const int64_t count = std::min(kAtOnce, d.count - first);
    const float* rows[kAtOnce];
    d.k.get(d.taken + first, count, rows);
    for (int64_t head = 0; head < d.heads; ++head) {
      const float* const query = d.queries + head * d.k.padded;
      V products[kAtOnce] = {V(0.0), V(0.0), V(0.0), V(0.0)};
      for (int64_t at = 0; at < d.k.padded; at += kLanes) {
        const V numbers = load(query + at);
#pragma GCC unroll 4
        for (int64_t i = 0; i < kAtOnce; ++i) products[i] = products[i] + numbers * load(rows[i] + at);
      }
      for (int64_t i = 0; i < count; ++i) d.scores[head * d.width + first + i] += sum(products[i]);
    }
  }

  // Makes scores exponentials. Returns their sum, and the largest score.
  static NPU_INLINE float normalize(float* scores, int64_t count, float* most) {
    const int64_t end = (count + kLanes - 1) / kLanes * kLanes;
    std::fill(scores + count, scores + end, -kInfinity);
    V largest(-kInfinity);
    for (int64_t at = 0; at < end; at += kLanes) largest = maximum(largest, load(scores + at));
    float lanes[kLanes];
    store(largest, lanes);
    *most = -kInfinity;
    for (const float lane : lanes) *most = lane > *most || lane != lane ? lane : *most;
    const V shift(*most == -kInfinity ? 0.0f : *most);
    V total(0.0);
    for (int64_t at = 0; at < end; at += kLanes) {
      const V weight = exponential(load(scores + at) - shift);
      total = total + weight;
      store(weight, scores + at);
    }
    return sum(total);
  }

  static NPU_INLINE void add_values(const Decode& d, int64_t first) {
    const int64_t count = std::min(kAtOnce, d.count - first);
    const float* rows[kAtOnce];
    d.v.get(d.taken + first, count, rows);
    for (int64_t head = 0; head < d.heads; ++head) {
      const float* const weights = d.scores + head * d.width + first;
      float* const sums = d.sums + head * d.v.padded;
      const V factors[kAtOnce] = {V(weights[0]), V(count > 1 ? weights[1] : 0.0f), V(count > 2 ? weights[2] : 0.0f),
                                  V(count > 3 ? weights[3] : 0.0f)};
      for (int64_t at = 0; at < d.v.padded; at += kLanes) {
        V total = load(sums + at);
#pragma GCC unroll 4
        for (int64_t i = 0; i < kAtOnce; ++i) total = total + factors[i] * load(rows[i] + at);
        store(total, sums + at);
      }
    }
  }

  static NPU_INLINE void run(const Decode* decode) {
    const Decode& d = *decode;
    for (int64_t first = 0; first < d.count; first += kAtOnce) add_scores(d, first);
    std::fill(d.sums, d.sums + d.heads * d.v.padded, 0.0f);
    for (int64_t head = 0; head < d.heads; ++head) {
      float most;
      d.totals[head] = normalize(d.scores + head * d.width, d.count, &most);
      d.logarithms[head] = most + std::log(d.totals[head]);
    }
    for (int64_t first = 0; first < d.count; first += kAtOnce) add_values(d, first);
    for (int64_t head = 0; head < d.heads; ++head) {
      const float total = d.totals[head];
      for (int64_t at = 0; at < d.v.padded; at += kLanes) {
        float* const sums = d.sums + head * d.v.padded + at;
        store(total == 0.0f ? V(0.0) : load(sums) * V(1.0f / total), sums);
      }
    }
  }
};

// How a call is cut into groups, and the workspace of a thread.
class Call {
 public:
  explicit Call(const Geometry& geometry)
      : g_(geometry), heads_(g_.heads_of_group()), size_(aligned(g_.size)), value_size_(aligned(g_.value_size)),
        width_(aligned(g_.is_causal ? 1 : g_.keys)) {}

  int64_t slice() const {
    const int64_t rows = kAtOnce * (size_ + value_size_), masks = aligned(kMasked) * heads_;
    return rows + heads_ * (size_ + value_size_ + width_) + width_ + masks + aligned(2 * heads_);
  }
  int64_t groups() const { return g_.batch * g_.groups; }
  void run(int64_t index, float* slice) const;

 private:
  Rows rows_of(const View& view, int64_t batch, int64_t group, int64_t size, int64_t padded, float* copies) const;
  int64_t take_keys(int64_t batch, int64_t first_head, float* masks, float* scores, int32_t* taken) const;
  bool read_masks(int64_t batch, int64_t first_head, int64_t first, int64_t count, float* masks) const;

  const Geometry& g_;
  int64_t heads_, size_, value_size_, width_;
};

Rows Call::rows_of(const View& view, int64_t batch, int64_t group, int64_t size, int64_t padded, float* copies) const {
  const int64_t item = item_bytes(g_.dtype);
  const bool is_read = g_.dtype != kFloat32 || (view.strides[3] != 1 && size > 1) || size != padded;
  if (is_read) std::fill(copies, copies + kAtOnce * padded, 0.0f);
  return {view.at(item, batch, group), view.strides[2] * item, view.strides[3], size, padded,
          is_read ? pointwise::reader(pointwise::element_of(g_.dtype), pointwise::kFloat32) : nullptr, copies};
}

// What masks add to the scores of `count` keys, [heads, kMasked]; false where all of them are hidden.
bool Call::read_masks(int64_t batch, int64_t first_head, int64_t first, int64_t count, float* masks) const {
  static constexpr char hidden[kMasked] = {};
  const int64_t item = g_.mask_is_truth ? 1 : item_bytes(g_.dtype), heads = g_.mask_sizes[1] == 1 ? 1 : heads_;
  const auto element = g_.mask_is_truth ? pointwise::Element::Bool : pointwise::element_of(g_.dtype);
  const pointwise::ReadRow read = pointwise::reader(element, pointwise::kFloat32);
  bool has_keys = false;
  for (int64_t head = 0; head < heads; ++head) {
    const char* const at = g_.mask.at(item, batch, first_head + head) + first * g_.mask.strides[3] * item;
    float* const to = masks + head * kMasked;
    if (g_.mask_is_truth && g_.mask.strides[3] == 1 && std::memcmp(at, hidden, size_t(count)) == 0) {
      std::fill(to, to + count, -kInfinity);
      continue;
    }
    read(at, g_.mask.strides[3], to, count);
    for (int64_t i = 0; i < count; ++i) {
      if (g_.mask_is_truth) to[i] = to[i] != 0 ? 0.0f : -kInfinity;
      has_keys = has_keys || to[i] != -kInfinity;
    }
  }
  return has_keys;
}

// The keys that a head of a group takes; the scores of these begin with what masks add.
int64_t Call::take_keys(int64_t batch, int64_t first_head, float* masks, float* scores, int32_t* taken) const {
  const int64_t keys = g_.is_causal ? std::min<int64_t>(1, g_.keys) : g_.keys;
  int64_t count = 0;
  for (int64_t first = 0; first < keys; first += kMasked) {
    const int64_t size = std::min(kMasked, keys - first);
    if (g_.has_mask && !read_masks(batch, first_head, first, size, masks)) continue;
    for (int64_t i = 0; i < size; ++i) {
      bool is_taken = !g_.has_mask;
      for (int64_t head = 0; head < heads_; ++head) {
        const float added = g_.has_mask ? masks[(g_.mask_sizes[1] == 1 ? 0 : head) * kMasked + i] : 0.0f;
        scores[head * width_ + count] = added;
        is_taken = is_taken || added != -kInfinity;
      }
      taken[count] = static_cast<int32_t>(first + i);
      count += is_taken;
    }
  }
  return count;
}

void Call::run(int64_t index, float* slice) const {
  const int64_t batch = index / g_.groups, group = index % g_.groups, first_head = group * heads_;
  const int64_t item = item_bytes(g_.dtype);
  float* const copies = slice;
  float* const value_copies = copies + kAtOnce * size_;
  float* const queries = value_copies + kAtOnce * value_size_;
  float* const sums = queries + heads_ * size_;
  float* const scores = sums + heads_ * value_size_;
  auto* const taken = reinterpret_cast<int32_t*>(scores + heads_ * width_);
  float* const masks = reinterpret_cast<float*>(taken) + width_;
  float* const totals = masks + aligned(kMasked) * heads_;
  const auto element = pointwise::element_of(g_.dtype);
  const pointwise::ReadRow read = pointwise::reader(element, pointwise::kFloat32);
  std::fill(queries, queries + heads_ * size_, 0.0f);
  for (int64_t head = 0; head < heads_; ++head) {
    float* const query = queries + head * size_;
    read(g_.q.at(item, batch, first_head + head), g_.q.strides[3], query, g_.size);
    for (int64_t i = 0; i < g_.size; ++i) query[i] *= g_.scale;
  }
  const int64_t count = take_keys(batch, first_head, masks, scores, taken);
  const Decode decode{heads_, count, width_, taken, rows_of(g_.k, batch, group, g_.size, size_, copies),
                      rows_of(g_.v, batch, group, g_.value_size, value_size_, value_copies), queries, scores, sums,
                      totals, totals + heads_};
  static const auto loop = widest<float, DecodeLoop>();
  loop(&decode);
  const pointwise::WriteRow write = pointwise::writer(element, pointwise::kFloat32);
  for (int64_t head = 0; head < heads_; ++head) {
    write(sums + head * value_size_, g_.o.at(item, batch, first_head + head), g_.o.strides[3], g_.value_size);
    if (g_.has_lse) *reinterpret_cast<float*>(g_.lse.at(sizeof(float), batch, first_head + head)) = decode.logarithms[head];
  }
}

}  // namespace

uint64_t decode_workspace_bytes(const Geometry& geometry) {
  return uint64_t(sizeof(float)) * uint64_t(Call(geometry).slice() * thread_count());
}

void decode(const Geometry& geometry, void* workspace, uint64_t bytes) {
  const Call call(geometry);
  const int64_t slices = int64_t(bytes / sizeof(float)) / call.slice(), items = call.groups();
  std::atomic<int64_t> used{0};
  parallel_for(items * kItem, (items + slices - 1) / slices * kItem, [&](int64_t begin, int64_t end) {
    float* const slice = static_cast<float*>(workspace) + used++ * call.slice();
    for (int64_t item = begin / kItem; item < end / kItem; ++item) call.run(item, slice);
  });
}

}  // namespace npu::attention
