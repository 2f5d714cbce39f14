// The loop over the keys of a group of heads, for attention of one query of each.
#pragma once

#include <algorithm>
#include <cmath>
#include <utility>

#include "ops/attention/host_operands.h"

namespace npu::attention {

inline constexpr int64_t kAligned = 16;  // floats of the widest vector, which are the most keys of a step
inline constexpr float kInfinity = std::numeric_limits<float>::infinity();

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

}  // namespace npu::attention
