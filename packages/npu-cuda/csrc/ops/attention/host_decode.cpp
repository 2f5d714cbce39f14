// Attention of one query of each head on the host, as in decoding. Nothing is transposed and keys are read once, in any dtype;
// those that a mask hides from every head of a group are not read at all, so the time does not depend on the length of a
// cache, but on the part of it that is in use.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "ops/attention/host_operands.h"
#include "ops/threads.h"

namespace npu::attention {
namespace {

constexpr int64_t kAligned = 16;  // floats of the widest vector, which are the most keys of a step
constexpr int64_t kMasked = 64;   // keys whose masks are read at once
constexpr float kInfinity = std::numeric_limits<float>::infinity();

int64_t aligned(int64_t elements) { return (elements + kAligned - 1) / kAligned * kAligned; }

// Rows of keys or values: where they are, or copied as floats with zeros after them.
struct Rows {
  const char* data;
  int64_t stride_bytes, element_stride, size, padded;
  pointwise::ReadRow read;  // null: they need not be copied
  float* copies;            // [kAligned, padded]

  const char* row(int32_t key) const { return data + key * stride_bytes; }

  // `wanted` rows: those of `count` keys, and the last one again.
  template <class E>
  void get(const int32_t* keys, int64_t count, int64_t wanted, const E** rows) const {
    for (int64_t i = 0; i < wanted; ++i) {
      const int64_t at = std::min(i, count - 1);
      rows[i] = reinterpret_cast<const E*>(row(keys[at]));
      if (!read) continue;
      float* const copy = copies + at * padded;
      if (i < count) read(row(keys[i]), element_stride, copy, size);
      rows[i] = reinterpret_cast<const E*>(copy);
    }
  }
};

// The queries of a group.
struct Decode {
  int64_t heads, count, width;  // of keys that are taken, and of a row of scores
  const int32_t* taken;
  const float* added;  // to the scores of these keys
  int64_t added_stride;
  Rows k, v;
  const float* queries;  // [heads, k.padded], scaled
  float* scores;         // [heads, width]
  float* sums;           // [heads, v.padded]
  float* totals;         // [heads]: the sums of exponentials
  float* logarithms;     // [heads]: of these sums
};

// Of keys and values that are read as elements of type E.
template <class E>
struct DecodeLoops {
  template <int kBytes>
  struct Loop;
};

template <class E>
template <int kBytes>
struct DecodeLoops<E>::Loop : ScoreLoop<kBytes, 1> {
  using Base = ScoreLoop<kBytes, 1>;
  using typename Base::Lanes, typename Base::V;
  using Base::exponential, Base::kLanes, Base::load, Base::store;

  static NPU_INLINE V numbers(const E* from) { return V::of(gemm::load_numbers<float, kBytes>(from)); }

  // Of lanes whose number has the bit `distance`: those of b, else of a; each the sum of the lane and of the one that far away.
  template <int... kLane>
  static NPU_INLINE V join(V a, V b, int distance, std::integer_sequence<int, kLane...>) {
    using Ints = typename pointwise::VectorOf<int, kBytes>::type;
    const Ints here{(kLane & distance ? kLane + int(kLanes) : kLane)...};
    const Ints there{(kLane & distance ? (kLane ^ distance) + int(kLanes) : kLane ^ distance)...};
    return V::of(__builtin_shuffle(a.raw, b.raw, here) + __builtin_shuffle(a.raw, b.raw, there));
  }

  // The sums of the lanes of each of kLanes vectors.
  static NPU_INLINE V sums_of(V* vectors) {
#pragma GCC unroll 4
    for (int distance = kLanes / 2; distance > 0; distance /= 2) {
#pragma GCC unroll 8
      for (int i = 0; i < distance; ++i) {
        vectors[i] = join(vectors[i], vectors[i + distance], distance, std::make_integer_sequence<int, kLanes>());
      }
    }
    return vectors[0];
  }

  // Products of a query and kLanes rows of keys.
  static NPU_INLINE V multiply(const float* query, const E* const* rows, int64_t size) {
    V products[kLanes];
#pragma GCC unroll 16
    for (int64_t i = 0; i < kLanes; ++i) products[i] = V(0.0);
    for (int64_t at = 0; at < size; at += kLanes) {
      const V factor = load(query + at);
#pragma GCC unroll 16
      for (int64_t i = 0; i < kLanes; ++i) products[i] = products[i] + factor * numbers(rows[i] + at);
    }
    return sums_of(products);
  }

  static NPU_INLINE void make_scores(const Decode& d, int64_t first) {
    const E* rows[kLanes];
    d.k.get(d.taken + first, std::min(kLanes, d.count - first), kLanes, rows);
    for (int64_t head = 0; head < d.heads; ++head) {
      const V products = multiply(d.queries + head * d.k.padded, rows, d.k.padded);
      store(load(d.added + head * d.added_stride + first) + products, d.scores + head * d.width + first);
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
    return gemm::sum_of_lanes<float, kBytes>(total.raw);
  }

  // Adds kCount rows of values, each times its weight.
  template <int kCount>
  static NPU_INLINE void add_rows(const float* weights, const E* const* rows, int64_t size, float* sums) {
    V factors[kCount];
#pragma GCC unroll 16
    for (int64_t i = 0; i < kCount; ++i) factors[i] = V(weights[i]);
    for (int64_t at = 0; at < size; at += kLanes) {
      V even = load(sums + at), odd(0.0);
#pragma GCC unroll 16
      for (int64_t i = 0; i < kCount; ++i) {
        V& sum = i % 2 == 0 ? even : odd;
        sum = sum + factors[i] * numbers(rows[i] + at);
      }
      store(even + odd, sums + at);
    }
  }

  template <int kCount>
  static NPU_INLINE void add_values(const Decode& d, int64_t first) {
    const E* rows[kCount];
    d.v.get(d.taken + first, kCount, kCount, rows);
    for (int64_t head = 0; head < d.heads; ++head) {
      add_rows<kCount>(d.scores + head * d.width + first, rows, d.v.padded, d.sums + head * d.v.padded);
    }
  }

  static NPU_INLINE void run(const Decode* decode) {
    const Decode& d = *decode;
    for (int64_t first = 0; first < d.count; first += kLanes) make_scores(d, first);
    std::fill(d.sums, d.sums + d.heads * d.v.padded, 0.0f);
    for (int64_t head = 0; head < d.heads; ++head) {
      float most;
      d.totals[head] = normalize(d.scores + head * d.width, d.count, &most);
      d.logarithms[head] = most + std::log(d.totals[head]);
    }
    int64_t first = 0;
    for (; first + kLanes <= d.count; first += kLanes) add_values<kLanes>(d, first);
    for (; first < d.count; ++first) add_values<1>(d, first);
    for (int64_t head = 0; head < d.heads; ++head) {
      const float total = d.totals[head];
      for (int64_t at = 0; at < d.v.padded; at += kLanes) {
        float* const sums = d.sums + head * d.v.padded + at;
        store(total == 0.0f ? V(0.0) : load(sums) * V(1.0f / total), sums);
      }
    }
  }
};

using DecodeFunction = void (*)(const Decode*);

DecodeFunction loop_of(DType dtype) {
  static const DecodeFunction floats = widest<float, DecodeLoops<float>::Loop>(), halves = widest<float, DecodeLoops<Half>::Loop>(),
                              brain_floats = widest<float, DecodeLoops<BFloat16>::Loop>();
  return dtype == kFloat32 ? floats : dtype == kFloat16 ? halves : brain_floats;
}

// Takes the elements of a row from kAligned places of it in turns: rows of keys and values that are far apart come from memory
// in nearly half the time of those that follow each other, since the processor reads ahead within each page that is in use.
template <class T>
void spread(T* row, int64_t count, T* copy) {
  const int64_t steps = count / kAligned;
  std::copy_n(row, steps * kAligned, copy);
  for (int64_t step = 0; step < steps; ++step) {
    for (int64_t place = 0; place < kAligned; ++place) row[step * kAligned + place] = copy[place * steps + (step + place) % steps];
  }
}

// How a call is cut into groups, and the workspace of a thread.
class Call {
 public:
  explicit Call(const Geometry& geometry)
      : g_(geometry), heads_(g_.heads_of_group()), masks_(g_.has_mask && g_.mask_sizes[1] != 1 ? heads_ : 1),
        size_(aligned(g_.size)), value_size_(aligned(g_.value_size)), width_(aligned(g_.is_causal ? 1 : g_.keys)) {}

  int64_t slice() const {
    const int64_t rows = kAligned * (size_ + value_size_), masks = masks_ * (kMasked + width_);
    return rows + heads_ * (size_ + value_size_ + width_) + 2 * width_ + masks + aligned(2 * heads_);
  }
  int64_t groups() const { return g_.batch * g_.groups; }
  void run(int64_t begin, int64_t end, float* slice) const;

 private:
  // The keys that heads take, and what masks add to their scores.
  struct Taken {
    int32_t *keys, *spread;  // [width_]
    float* added;  // [masks_, width_]
    float* masks;  // [masks_, kMasked]: those that are read
    int64_t count;
  };

  void take_keys(int64_t batch, int64_t first_head, Taken* taken) const;
  bool read_masks(int64_t batch, int64_t first_head, int64_t first, int64_t count, float* masks) const;
  void run_group(int64_t batch, int64_t group, const Taken& taken, float* slice) const;
  Rows rows_of(const View& view, int64_t batch, int64_t group, int64_t size, int64_t padded, bool is_copied, float* copies) const;
  bool is_near(const View& view, int64_t size) const { return size % kAligned == 0 && (view.strides[3] == 1 || size <= 1); }

  const Geometry& g_;
  int64_t heads_, masks_, size_, value_size_, width_;
};

Rows Call::rows_of(const View& view, int64_t batch, int64_t group, int64_t size, int64_t padded, bool is_copied, float* copies) const {
  const int64_t item = item_bytes(g_.dtype);
  if (is_copied) std::fill(copies, copies + kAligned * padded, 0.0f);
  return {view.at(item, batch, group), view.strides[2] * item, view.strides[3], size, padded,
          is_copied ? pointwise::reader(pointwise::element_of(g_.dtype), pointwise::kFloat32) : nullptr, copies};
}

// What masks add to the scores of `count` keys, [masks_, kMasked]; false where all of them are hidden.
bool Call::read_masks(int64_t batch, int64_t first_head, int64_t first, int64_t count, float* masks) const {
  static constexpr char hidden[kMasked] = {};
  const int64_t item = g_.mask_is_truth ? 1 : item_bytes(g_.dtype);
  const auto element = g_.mask_is_truth ? pointwise::Element::Bool : pointwise::element_of(g_.dtype);
  const pointwise::ReadRow read = pointwise::reader(element, pointwise::kFloat32);
  bool has_keys = false;
  for (int64_t head = 0; head < masks_; ++head) {
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

void Call::take_keys(int64_t batch, int64_t first_head, Taken* taken) const {
  const int64_t keys = g_.is_causal ? std::min<int64_t>(1, g_.keys) : g_.keys;
  int64_t count = 0;
  for (int64_t first = 0; first < keys; first += kMasked) {
    const int64_t size = std::min(kMasked, keys - first);
    if (g_.has_mask && !read_masks(batch, first_head, first, size, taken->masks)) continue;
    for (int64_t i = 0; i < size; ++i) {
      bool is_taken = !g_.has_mask;
      for (int64_t head = 0; head < masks_; ++head) {
        const float added = g_.has_mask ? taken->masks[head * kMasked + i] : 0.0f;
        taken->added[head * width_ + count] = added;
        is_taken = is_taken || added != -kInfinity;
      }
      taken->keys[count] = static_cast<int32_t>(first + i);
      count += is_taken;
    }
  }
  taken->count = count;
  spread(taken->keys, count, taken->spread);
  for (int64_t head = 0; head < masks_; ++head) spread(taken->added + head * width_, count, reinterpret_cast<float*>(taken->spread));
}

void Call::run(int64_t begin, int64_t end, float* slice) const {
  auto* const keys = reinterpret_cast<int32_t*>(slice);
  float* const added = slice + 2 * width_;
  float* const masks = added + masks_ * width_;
  Taken taken{keys, keys + width_, added, masks, 0};
  int64_t known = -1;  // the batch whose keys these are; heads may have masks of their own
  for (int64_t index = begin; index < end; ++index) {
    const int64_t batch = index / g_.groups, group = index % g_.groups;
    if (batch != known || masks_ != 1) take_keys(batch, group * heads_, &taken);
    known = batch;
    run_group(batch, group, taken, masks + masks_ * kMasked);
  }
}

void Call::run_group(int64_t batch, int64_t group, const Taken& taken, float* slice) const {
  const int64_t item = item_bytes(g_.dtype), first_head = group * heads_;
  float* const copies = slice;
  float* const value_copies = copies + kAligned * size_;
  float* const queries = value_copies + kAligned * value_size_;
  float* const sums = queries + heads_ * size_;
  float* const scores = sums + heads_ * value_size_;
  float* const totals = scores + heads_ * width_;
  const auto element = pointwise::element_of(g_.dtype);
  const pointwise::ReadRow read = pointwise::reader(element, pointwise::kFloat32);
  std::fill(queries, queries + heads_ * size_, 0.0f);
  for (int64_t head = 0; head < heads_; ++head) {
    float* const query = queries + head * size_;
    read(g_.q.at(item, batch, first_head + head), g_.q.strides[3], query, g_.size);
    for (int64_t i = 0; i < g_.size; ++i) query[i] *= g_.scale;
  }
  const bool is_copied = !is_near(g_.k, g_.size) || !is_near(g_.v, g_.value_size);
  const Decode decode{heads_, taken.count, width_, taken.keys, taken.added, masks_ == 1 ? 0 : width_,
                      rows_of(g_.k, batch, group, g_.size, size_, is_copied, copies),
                      rows_of(g_.v, batch, group, g_.value_size, value_size_, is_copied, value_copies), queries, scores, sums,
                      totals, totals + heads_};
  loop_of(is_copied ? kFloat32 : g_.dtype)(&decode);
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
    call.run(begin / kItem, end / kItem, slice);
  });
}

}  // namespace npu::attention
