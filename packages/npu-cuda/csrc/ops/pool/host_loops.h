// The loops of pools over rows of numbers: sums and maxima of rows, then of the pixels of one; places of maxima; and
// their gradients.
#pragma once

#include <limits>

#include "ops/host_simd.h"
#include "ops/pointwise/vector_math.h"
#include "ops/pool/host_rows.h"

namespace npu::pool {

struct Sum {
  static constexpr double start = 0;
  template <class V>
  static NPU_INLINE V step(V a, V x, V weight) { return fma(weight, x, a); }
};

struct Max {
  static constexpr double start = -std::numeric_limits<double>::infinity();
  template <class V>
  static NPU_INLINE V step(V a, V x, V) { return maximum(a, x); }
};

template <class Lane, int kBytes>
struct Lanes {
  using V = pointwise::Value<typename pointwise::VectorOf<Lane, kBytes>::type>;
  using One = pointwise::Value<Lane>;
  using Unaligned = typename pointwise::VectorOf<Lane, kBytes>::unaligned;
  static constexpr int64_t kCount = kBytes / sizeof(Lane);

  template <class T>
  static NPU_INLINE T load(const Lane* from) {
    if constexpr (std::is_same_v<T, One>) return One::of(*from);
    else return V::of(*reinterpret_cast<const Unaligned*>(from));
  }
  static NPU_INLINE void store(One value, Lane* to) { *to = value.raw; }
  static NPU_INLINE void store(V value, Lane* to) { *reinterpret_cast<Unaligned*>(to) = value.raw; }

  // f.at<T>(i) for vectors, or numbers, from i on, which cover 0 to n; some of them twice.
  template <class F>
  static NPU_INLINE void each(int64_t n, const F& f) {
    if (n >= kCount) {
      for (int64_t i = 0; i < n; i += kCount) f.template at<V>(i + kCount <= n ? i : n - kCount);
    } else {
      for (int64_t i = 0; i < n; ++i) f.template at<One>(i);
    }
  }
};

// Positions along the width, each of some pixels of a row.
template <class Lane>
struct Positions {
  const Run* runs;
  int64_t count, inner;
  const Lane* weights;  // null: none
  int64_t most;
};

template <class Fn, class Lane>
struct RowLoops {
  // to = to + weight * x; without what `to` was before where it is the first one.
  template <int kBytes>
  struct Add {
    using L = Lanes<Lane, kBytes>;
    static NPU_INLINE void run(const Lane* x, Lane weight, Lane* to, int64_t n, bool is_first) {
      using V = typename L::V;
      using One = typename L::One;
      const V factor = V::of(weight - decltype(V::raw){});
      int64_t i = 0;
      for (; i + L::kCount <= n; i += L::kCount) {
        const V before = is_first ? V(Fn::start) : L::template load<V>(to + i);
        L::store(Fn::step(before, L::template load<V>(x + i), factor), to + i);
      }
      for (; i < n; ++i) L::store(Fn::step(is_first ? One(Fn::start) : One::of(to[i]), One::of(x[i]), One::of(weight)), to + i);
    }
  };

  template <int kBytes>
  struct Join {
    using L = Lanes<Lane, kBytes>;

    struct Pixel {
      const Lane *x, *weights;
      int64_t inner, taps, step;
      Lane* to;

      template <class T>
      NPU_INLINE void at(int64_t i) const {
        T sum = Fn::start;
        for (int64_t tap = 0; tap < taps; ++tap) {
          const T weight = weights ? T::of(weights[tap] - decltype(T::raw){}) : T(0);
          sum = Fn::step(sum, L::template load<T>(x + tap * step * inner + i), weight);
        }
        L::store(sum, to + i);
      }
    };

    static NPU_INLINE void run(const Lane* row, const Positions<Lane>* positions, Lane* to) {
      const Positions<Lane>& p = *positions;
      for (int64_t at = 0; at < p.count; ++at) {
        const Run& run = p.runs[at];
        const Pixel pixel{row + run.first * p.inner, p.weights ? p.weights + at * p.most : nullptr, p.inner, run.count,
                          run.step, to + at * p.inner};
        if (p.inner == 1) pixel.template at<typename L::One>(0);
        else L::each(p.inner, pixel);
      }
    }
  };
};

// The rows of a window, and the places of their first elements.
template <class Lane>
struct Window {
  std::vector<const Lane*> rows;
  std::vector<int64_t> places;
  int64_t start;  // the place of a window without a largest element, from that of its first pixel on
};

template <class Lane>
struct PlaceLoops {
  using Place = std::conditional_t<sizeof(Lane) == 4, int32_t, int64_t>;

  template <int kBytes>
  struct Find {
    using L = Lanes<Lane, kBytes>;

    struct Pixel {
      const Window<Lane>& window;
      const Run& run;
      int64_t inner;
      Lane* best;
      Place* places;

      template <class T>
      NPU_INLINE void at(int64_t i) const {
        using Places = std::conditional_t<std::is_same_v<T, typename L::One>, Place, typename pointwise::VectorOf<Place, kBytes>::type>;
        T most = Max::start;
        Places place = Places{} + static_cast<Place>(window.start + run.first);
        for (size_t row = 0; row < window.rows.size(); ++row) {
          for (int64_t pixel = run.first; pixel < run.end(); pixel += run.step) {
            const T x = L::template load<T>(window.rows[row] + pixel * inner + i);
            const auto is_next = x > most || x != x;
            most = select(is_next, x, most);
            place = is_next.truth ? Places{} + static_cast<Place>(window.places[row] + pixel) : place;
          }
        }
        L::store(most, best + i);
        std::memcpy(places + i, &place, sizeof(place));
      }
    };

    static NPU_INLINE void run(const Window<Lane>* window, const Positions<Lane>* positions, Lane* best, Place* places) {
      const Positions<Lane>& p = *positions;
      for (int64_t at = 0; at < p.count; ++at) {
        const Pixel pixel{*window, p.runs[at], p.inner, best + at * p.inner, places + at * p.inner};
        if (p.inner == 1) pixel.template at<typename L::One>(0);
        else L::each(p.inner, pixel);
      }
    }
  };
};

// Adds the gradients of a row to the pixels of another, from place `first` on, that their places name. `positions`: of
// each pixel, those whose windows it is in.
template <class Lane>
struct AddWhere {
  static NPU_INLINE void run(const Lane* dy, const int64_t* places, const Positions<Lane>* positions, int64_t first, int64_t count, Lane* dx) {
    const Positions<Lane>& p = *positions;
    if (p.inner == 1) return add_numbers(dy, places, p, first, count, dx);
    for (int64_t pixel = 0; pixel < p.count; ++pixel) {
      Lane* const to = dx + pixel * p.inner;
      for (int64_t at = p.runs[pixel].first; at < p.runs[pixel].end(); ++at) {
        const Lane* from = dy + at * p.inner;
        const int64_t* own = places + at * p.inner;
        for (int64_t i = 0; i < p.inner; ++i) to[i] += own[i] == first + pixel ? from[i] : Lane(0);
      }
    }
  }

 private:
  static NPU_INLINE void add_numbers(const Lane* dy, const int64_t* places, const Positions<Lane>& p, int64_t first, int64_t count, Lane* dx) {
    Lane unused[16] = {};  // branches on places would be guessed wrong
    for (int64_t at = 0; at < count; ++at) {
      const int64_t named = places[at] - first;
      const bool is_inside = static_cast<uint64_t>(named) < static_cast<uint64_t>(p.count);
      const int64_t pixel = is_inside ? named : 0;
      const bool is_made_of = static_cast<uint64_t>(at - p.runs[pixel].first) < static_cast<uint64_t>(p.runs[pixel].count);
      *(is_inside & is_made_of ? dx + pixel : unused + at % 16) += dy[at];
    }
  }
};

}  // namespace npu::pool
