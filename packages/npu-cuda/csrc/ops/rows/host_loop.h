// The passes over rows of contiguous numbers, of an op as vectors of the widest instructions.
#pragma once

#include <limits>

#include "ops/pointwise/host_kernels.h"
#include "ops/rows/row_blocks.h"

namespace npu::rows {

using pointwise::NumberOf;
using pointwise::VectorOf;

template <class Lane, int kBytes>
struct VectorsOf {
  using V = Value<typename VectorOf<Lane, kBytes>::type>;
  using N = Value<Lane>;
  using Unaligned = typename VectorOf<Lane, kBytes>::unaligned;
  static constexpr int kLanes = kBytes / sizeof(Lane);

  static NPU_INLINE V load(const Lane* from) { return V::of(*reinterpret_cast<const Unaligned*>(from)); }
  static NPU_INLINE void store(V value, Lane* to) { *reinterpret_cast<Unaligned*>(to) = value.raw; }
  static NPU_INLINE V all(N number) { return V::of(typename VectorOf<Lane, kBytes>::type{} + number.raw); }

  // The first n numbers, and beyond them `rest`.
  static NPU_INLINE V first(V value, int64_t n, Lane rest) {
    Lane lanes[kLanes];
    store(value, lanes);
    for (int i = 0; i < kLanes; ++i) lanes[i] = i < n ? lanes[i] : rest;
    return load(lanes);
  }
};

// All numbers of a vector joined, halves first.
template <bool kIsSum, class Lane, class V>
NPU_INLINE Value<Lane> joined_lanes(V value) {
  constexpr int half = sizeof(V) / sizeof(Lane) / 2;
  if constexpr (half == 1) {
    return join<kIsSum>(Value<Lane>::of(value.raw[0]), Value<Lane>::of(value.raw[1]));
  } else {
    using Half = Value<typename VectorOf<Lane, half * sizeof(Lane)>::type>;
    const auto halves = [&]<size_t... i>(std::index_sequence<i...>) __attribute__((always_inline)) {
      return join<kIsSum>(Half::of(__builtin_shufflevector(value.raw, value.raw, i...)),
                          Half::of(__builtin_shufflevector(value.raw, value.raw, (i + half)...)));
    };
    return joined_lanes<kIsSum, Lane>(halves(std::make_index_sequence<half>()));
  }
}

// The first inputs of a formula that its reductions read.
template <class F>
constexpr int reduced_inputs() {
  if constexpr (requires { F::kReduced; }) return F::kReduced;
  else return F::kInputs;
}

template <class F, class Lane, int kBytes, bool kResident>
struct RowPasses : VectorsOf<Lane, kBytes> {
  using Base = VectorsOf<Lane, kBytes>;
  using Base::kLanes;
  using typename Base::N;
  using typename Base::V;
  using Small = typename VectorsOf<Lane, 16>::V;
  static constexpr int kUnroll = 4;

  const HostRows& rows;
  RowBlocks& blocks;
  N s[kNumbers];
  V numbers[kNumbers];

  NPU_INLINE RowPasses(const HostRows& of, RowBlocks& at) : rows(of), blocks(at) {}

  NPU_INLINE const Lane* input(int k) const { return static_cast<const Lane*>(blocks.along[k]); }
  NPU_INLINE Lane* result() const { return static_cast<Lane*>(blocks.along[F::kInputs]); }

  NPU_INLINE void load_inputs(int64_t at, V* in) const {
    for (int k = 0; k < F::kInputs; ++k) in[k] = Base::load(input(k) + at);
  }
  // What is less than a vector, and zeros.
  static NPU_INLINE V load_rest(const Lane* from, int64_t at, int64_t n) {
    Lane lanes[kLanes] = {};
    std::copy(from + at, from + n, lanes);
    return Base::load(lanes);
  }
  NPU_INLINE void load_rests(int64_t at, int64_t n, V* in) const {
    for (int k = 0; k < F::kInputs; ++k) in[k] = load_rest(input(k), at, n);
  }
  static NPU_INLINE void store_rest(V value, int64_t count, Lane* to) {
    Lane lanes[kLanes];
    Base::store(value, lanes);
    std::copy(lanes, lanes + count, to);
  }

  template <class Step>
  NPU_INLINE V term(const V* in, int64_t at) const {
    const V value = Step::template term<V>(in, numbers);
    if constexpr (Step::is_kept && kResident) Base::store(value, result() + at);
    return value;
  }

  template <class Step>
  NPU_INLINE void add_block(int64_t n, V* totals) const {
    V in[F::kInputs];
    int64_t i = 0;
    for (; i + kUnroll * kLanes <= n; i += kUnroll * kLanes) {
#pragma GCC unroll 4
      for (int u = 0; u < kUnroll; ++u) {
        load_inputs(i + u * kLanes, in);
        totals[u] = join<Step::is_sum>(totals[u], term<Step>(in, i + u * kLanes));
      }
    }
    for (; i + kLanes <= n; i += kLanes) {
      load_inputs(i, in);
      totals[0] = join<Step::is_sum>(totals[0], term<Step>(in, i));
    }
    if (i == n) return;
    load_rests(i, n, in);
    const V value = Step::template term<V>(in, numbers);
    if constexpr (Step::is_kept && kResident) store_rest(value, n - i, result() + i);
    totals[1] = join<Step::is_sum>(totals[1], Base::first(value, n - i, none<Step>()));
  }

  template <class Step>
  static NPU_INLINE constexpr Lane none() {
    return Step::is_sum ? Lane(0) : -std::numeric_limits<Lane>::infinity();
  }

  static NPU_INLINE Small small(N number) { return VectorsOf<Lane, 16>::all(number); }

  template <class Step>
  static NPU_INLINE N total_of(const V* totals) {
    const V pair = join<Step::is_sum>(join<Step::is_sum>(totals[0], totals[1]),
                                      join<Step::is_sum>(totals[2], totals[3]));
    return joined_lanes<Step::is_sum, Lane>(pair);
  }

  // In blocks, of which so many inputs are loaded.
  template <class Each>
  NPU_INLINE void each_block(int inputs, Each each) {
    const int64_t width = rows.width();
    if constexpr (kResident) return each(int64_t{0}, width);
    for (int64_t at = 0; at < width; at += kBlock) {
      const int64_t n = std::min(kBlock, width - at);
      blocks.load(at, n, inputs);
      each(at, n);
    }
  }

  template <class Step>
  NPU_INLINE void reduce() {
    for (int k = 0; k < kNumbers; ++k) numbers[k] = Base::all(s[k]);
    V totals[kUnroll];
    for (V& total : totals) total = Base::all(N::of(none<Step>()));
    each_block(reduced_inputs<F>(), [&](int64_t, int64_t n) __attribute__((always_inline)) { add_block<Step>(n, totals); });
    // As a small vector: its functions are code here, those of single numbers calls of the library.
    Small finished[kNumbers];
    for (int k = 0; k < kNumbers; ++k) finished[k] = small(s[k]);
    Step::template finish<Small>(small(total_of<Step>(totals)), Small(double(rows.width())), rows.eps,
                                 finished);
    for (int k = 0; k < kNumbers; ++k) s[k] = N::of(finished[k].raw[0]);
  }

  // The kept term of places from `at`; from a row of `n` the last ones.
  template <class... Each>
  NPU_INLINE V kept(Steps<Each...>, const V* in, int64_t at, int64_t n) const {
    using Step = typename KeptOf<Each...>::type;
    if constexpr (std::is_void_v<Step>) return V(0);
    else if constexpr (!kResident) return Step::template term<V>(in, numbers);
    else return n - at < kLanes ? load_rest(result(), at, n) : Base::load(result() + at);
  }

  NPU_INLINE void write_block(int64_t n) const {
    V in[F::kInputs];
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) {
      load_inputs(i, in);
      Base::store(F::template result<V>(in, kept(typename F::Reductions{}, in, i, n), numbers), result() + i);
    }
    if (i == n) return;
    load_rests(i, n, in);
    store_rest(F::template result<V>(in, kept(typename F::Reductions{}, in, i, n), numbers), n - i,
               result() + i);
  }

  // Adds the row to the sums that are the gradients of gamma and beta.
  NPU_INLINE void add_to_sums(Lane* gamma, Lane* beta, int64_t n) const {
    V in[F::kInputs];
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) {
      load_inputs(i, in);
      Base::store(Base::load(gamma + i) + in[1] * ((in[0] - numbers[0]) * numbers[1]), gamma + i);
      Base::store(Base::load(beta + i) + in[1], beta + i);
    }
    if (i == n) return;
    load_rests(i, n, in);
    store_rest(load_rest(gamma, i, n) + in[1] * ((in[0] - numbers[0]) * numbers[1]), n - i, gamma + i);
    store_rest(load_rest(beta, i, n) + in[1], n - i, beta + i);
  }

  template <class... Each>
  NPU_INLINE void run_row(Steps<Each...>, Lane* sums) {
    for (N& number : s) number = N(0);
    for (int i = 0; i < F::kGiven; ++i) s[F::kFirstNumber + i] = N::of(blocks.read_number<Lane>(i));
    if constexpr (kResident) blocks.load(0, rows.width(), F::kInputs);
    (reduce<Each>(), ...);
    for (int k = 0; k < kNumbers; ++k) numbers[k] = Base::all(s[k]);
    each_block(F::kInputs, [&](int64_t at, int64_t n) __attribute__((always_inline)) {
      if constexpr (F::kGiven > 0) {
        if (sums) add_to_sums(sums + at, sums + rows.width() + at, n);
      }
      if constexpr (F::kHasResult) {
        if (!rows.has_result) return;
        write_block(n);
        blocks.store(at, n);
      }
    });
    for (int i = 0; i < F::kMade; ++i) blocks.write_number<Lane>(i, s[F::kFirstNumber + i].raw);
  }
};

template <class F, class Lane, int kBytes>
struct RowLoop {
  template <bool kResident>
  static NPU_INLINE void run_rows(const HostRows& rows, const RowMemory& memory, int64_t begin, int64_t end, Lane* sums) {
    RowBlocks blocks(rows, memory, begin);
    RowPasses<F, Lane, kBytes, kResident> passes(rows, blocks);
    for (int64_t row = begin; row < end; ++row) {
      passes.run_row(typename F::Reductions{}, sums);
      if (row + 1 < end) blocks.advance();
    }
  }

  // The rows of one chunk.
  static NPU_INLINE void run(const HostRows* rows, const RowMemory* memory, int64_t chunk) {
    const int64_t begin = chunk * rows->rows_of_chunk,
                  end = std::min(begin + rows->rows_of_chunk, rows->count());
    Lane* sums = nullptr;
    if (rows->has_sums) {
      sums = reinterpret_cast<Lane*>(memory->sums) + chunk * 2 * rows->width();
      std::fill(sums, sums + 2 * rows->width(), Lane(0));
    }
    rows->is_resident ? run_rows<true>(*rows, *memory, begin, end, sums) : run_rows<false>(*rows, *memory, begin, end, sums);
  }
};

using RunChunk = void (*)(const HostRows* rows, const RowMemory* memory, int64_t chunk);

template <class F, class Lane>
struct RowLoops {
  template <int kBytes>
  using Rows = RowLoop<F, Lane, kBytes>;
};

template <class F, class Lane>
RunChunk chunk_loop() { return widest<Lane, RowLoops<F, Lane>::template Rows>(); }

}  // namespace npu::rows
