// The device code of reductions. `rows`: a block or a warp for each result; `columns`: a thread for each
// access of neighbouring results, and rows of such threads. Where results are few their elements are split
// into parts, whose states `join_parts` joins. The order of joins depends on shapes and alignment alone.
#pragma once

#include "ops/fast_division.h"
#include "ops/pointwise/cuda_rows.cuh"
#include "ops/reduce/op.h"

namespace npu::reduce {

using pointwise::Element;

inline constexpr int kLanes = 32, kWarps = 8;

// What the threads of all passes over a call read. Offsets and indices have 32 bits.
struct Plan {
  const void* x;
  const void* factors;  // of the dtype and the strides of x; null where X is not Centered
  void* y;
  Element x_element, y_element;
  int kept_rank, reduced_rank;
  FastDivision kept_shape[NPU_MAX_RANK], reduced_shape[NPU_MAX_RANK];
  uint32_t kept_x[NPU_MAX_RANK], kept_y[NPU_MAX_RANK], reduced_x[NPU_MAX_RANK];
  uint32_t results, elements;  // elements of each result
  uint32_t parts, part;        // of the elements, and the size of each
  uint32_t lanes;              // threads of a row of columns
  bool is_wide;                // accesses are of 16 bytes
};

// Of one pass.
template <class Number>
struct Memory {
  const Number* shifts;  // m of each result; null: 0
  Number* states;        // of each part; not used where there is one
  Number* numbers;       // the results; null: they are written to y
};

// X that is read as its dtype says at run time.
struct AnyElement {};

// X less m, times its factor.
template <class X>
struct Centered {};
template <class X>
struct ItemOf {
  using type = X;
};
template <class X>
struct ItemOf<Centered<X>> {
  using type = X;
};

// Elements of a wide access.
template <class X>
inline constexpr int kWide = kVectorBytes / sizeof(X);
template <>
inline constexpr int kWide<AnyElement> = 1;
template <class X>
inline constexpr int kWide<Centered<X>> = kWide<X>;

// Adds the offsets of the elements of these indices, which it uses up. The loop over the axes is not unrolled: code
// of all of them, most of which few tensors have, would be the larger part of a kernel.
template <int kCount>
__device__ void add_offsets(uint32_t (&indices)[kCount], int rank, const FastDivision* shape, const uint32_t* strides,
                            uint32_t (&offsets)[kCount]) {
#pragma unroll 1
  for (int axis = 0; axis < rank - 1; ++axis) {
#pragma unroll
    for (int j = 0; j < kCount; ++j) {
      uint32_t place;
      shape[axis](indices[j], &indices[j], &place);
      offsets[j] += place * strides[axis];
    }
  }
#pragma unroll
  for (int j = 0; j < kCount; ++j) offsets[j] += indices[j] * strides[rank - 1];
}

__device__ inline uint32_t offset_of(uint32_t index, int rank, const FastDivision* shape,
                                     const uint32_t* strides) {
  uint32_t indices[1] = {index}, offsets[1] = {0};
  add_offsets(indices, rank, shape, strides, offsets);
  return offsets[0];
}

// kCount neighbours from each of the offsets `at` on; all are asked for before one is used.
template <class Number, class X, int kCount, int kAtOnce>
__device__ void read_accesses(const void* data, Element element, const uint32_t (&at)[kAtOnce],
                              Value<Number> (&x)[kAtOnce][kCount]) {
  if constexpr (std::is_same_v<X, AnyElement>) {
    pointwise::read_elements<Number, kAtOnce>(data, element, at, &x[0][0]);
  } else {
    using Input = pointwise::Access<X, kCount>;
    Input items[kAtOnce];
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      items[j] = *reinterpret_cast<const Input*>(static_cast<const X*>(data) + at[j]);
    }
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
#pragma unroll
      for (int k = 0; k < kCount; ++k) x[j][k] = pointwise::read(items[j].items[k]);
    }
  }
}

// The accesses of a thread: every `step`th from `first` on, before `end`. Each takes `elements` of a result.
struct Accesses {
  uint32_t first, end, step, elements;
};

template <class Fn, class Number, class X, int kCount>
__device__ void take_accesses(const Plan& plan, const typename Fn::Attrs& p, const Value<Number>* m,
                              uint32_t offset, const Accesses& accesses, Value<Number>* states) {
  using Item = typename ItemOf<X>::type;
  constexpr int kAtOnce = kCount > 4 ? 2 : 4;
  for (uint32_t i = accesses.first; i < accesses.end; i += kAtOnce * accesses.step) {
    uint32_t indices[kAtOnce], at[kAtOnce];
    Value<Number> x[kAtOnce][kCount];
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      indices[j] = min(i + j * accesses.step, accesses.end - 1) * accesses.elements;
      at[j] = offset;
    }
    add_offsets(indices, plan.reduced_rank, plan.reduced_shape, plan.reduced_x, at);
    read_accesses<Number, Item, kCount>(plan.x, plan.x_element, at, x);
    if constexpr (!std::is_same_v<X, Item>) {
      Value<Number> factors[kAtOnce][kCount];
      read_accesses<Number, Item, kCount>(plan.factors, plan.x_element, at, factors);
#pragma unroll
      for (int j = 0; j < kAtOnce; ++j) {
#pragma unroll
        for (int k = 0; k < kCount; ++k) x[j][k] = factors[j][k] * (x[j][k] - m[k]);
      }
    }
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j) {
      if (i + j * accesses.step >= accesses.end) break;
#pragma unroll
      for (int k = 0; k < kCount; ++k) states[k] = Fn::step(p, states[k], x[j][k], m[k]);
    }
  }
}

// Of contiguous elements: accesses beside each other need no offsets.
template <class Fn, class Number, class X, int kCount>
__device__ void take_row(const Plan& plan, const typename Fn::Attrs& p, Value<Number> m, uint32_t first,
                         uint32_t accesses, uint32_t thread, uint32_t threads, Value<Number>* states) {
  using Item = typename ItemOf<X>::type;
  const Item* row = static_cast<const Item*>(plan.x) + first;
  for (uint32_t i = thread; i < accesses; i += threads) {
    const auto items = reinterpret_cast<const pointwise::Access<Item, kCount>*>(row)[i];
#pragma unroll
    for (int k = 0; k < kCount; ++k) states[k] = Fn::step(p, states[k], pointwise::read(items.items[k]), m);
  }
}

// The state of the elements of a part that this thread, of `threads`, reads.
template <class Fn, class Number, class X>
__device__ Value<Number> state_of_row(const Plan& plan, const typename Fn::Attrs& p, Value<Number> m,
                                      uint32_t offset, uint32_t begin, uint32_t end, uint32_t thread,
                                      uint32_t threads) {
  constexpr int kCount = kWide<X>;
  Value<Number> states[kCount], shifts[kCount];
#pragma unroll
  for (int k = 0; k < kCount; ++k) {
    states[k] = Fn::template start<Value<Number>>();
    shifts[k] = m;
  }
  if constexpr (kCount > 1) {
    if (plan.is_wide) {
      constexpr bool is_plain = std::is_same_v<X, typename ItemOf<X>::type>;
      if (is_plain && plan.reduced_rank == 1) {
        take_row<Fn, Number, X, kCount>(plan, p, m, offset + begin, (end - begin) / kCount, thread, threads, states);
      } else {
        const Accesses accesses{begin / kCount + thread, end / kCount, threads, kCount};
        take_accesses<Fn, Number, X, kCount>(plan, p, shifts, offset, accesses, states);
      }
#pragma unroll
      for (int half = kCount / 2; half > 0; half /= 2) {
#pragma unroll
        for (int k = 0; k < half; ++k) states[k] = Fn::merge(states[k], states[k + half]);
      }
      begin = end / kCount * kCount;
    }
  }
  take_accesses<Fn, Number, X, 1>(plan, p, shifts, offset, {begin + thread, end, threads, 1}, states);
  return states[0];
}

// Joins the states of all lanes of a warp in the first one.
template <class Fn, class Number>
__device__ Value<Number> join_lanes(Value<Number> state) {
#pragma unroll
  for (int half = kLanes / 2; half > 0; half /= 2) {
    state = Fn::merge(state, Value<Number>::of(__shfl_down_sync(~0u, state.raw, half)));
  }
  return state;
}

template <class Number>
__device__ Value<Number> shift_of(const Memory<Number>& memory, uint32_t result) {
  return Value<Number>::of(memory.shifts ? memory.shifts[result] : Number(0));
}

template <class Fn, class Number>
__device__ void put_result(const Plan& plan, const Memory<Number>& memory, const typename Fn::Attrs& p,
                           uint32_t result,
                           Value<Number> state) {
  const Value<Number> value = Fn::finish(p, state, shift_of(memory, result), double(plan.elements));
  if (memory.numbers) {
    memory.numbers[result] = value.raw;
  } else {
    const uint32_t at = offset_of(result, plan.kept_rank, plan.kept_shape, plan.kept_y);
    pointwise::write_element(value, plan.y, plan.y_element, at);
  }
}

template <class Fn, class Number>
__device__ void put_state(const Plan& plan, const Memory<Number>& memory, const typename Fn::Attrs& p,
                          uint32_t result,
                          Value<Number> state) {
  if (plan.parts == 1) put_result<Fn>(plan, memory, p, result, state);
  else memory.states[blockIdx.y * plan.results + result] = state.raw;
}

// Blocks of kLanes x kWarps threads; blockIdx.y is the part.
template <class Fn, class Number, class X, bool by_block>
__global__ void __launch_bounds__(kLanes* kWarps, 1) rows(const Plan plan, const Memory<Number> memory,
                                                       const typename Fn::Attrs p) {
  const uint32_t result = by_block ? blockIdx.x : blockIdx.x * kWarps + threadIdx.y;
  const bool is_used = result < plan.results;
  const uint32_t begin = blockIdx.y * plan.part, end = min(plan.elements, begin + plan.part);
  Value<Number> state = Fn::template start<Value<Number>>();
  if (is_used) {
    const uint32_t offset = offset_of(result, plan.kept_rank, plan.kept_shape, plan.kept_x);
    const uint32_t thread = by_block ? threadIdx.y * kLanes + threadIdx.x : threadIdx.x;
    state = state_of_row<Fn, Number, X>(plan, p, shift_of(memory, result), offset, begin, end, thread,
                                        by_block ? kLanes * kWarps : kLanes);
  }
  state = join_lanes<Fn>(state);
  if constexpr (by_block) {
    __shared__ Number states[kWarps];
    if (threadIdx.x == 0) states[threadIdx.y] = state.raw;
    __syncthreads();
    if (threadIdx.x != 0 || threadIdx.y != 0) return;
    for (int warp = 1; warp < kWarps; ++warp) state = Fn::merge(state, Value<Number>::of(states[warp]));
  }
  if (is_used && threadIdx.x == 0) put_state<Fn>(plan, memory, p, result, state);
}

// Rows of plan.lanes threads, each of which has as many results as an access has elements.
template <class Fn, class Number, class X>
__global__ void __launch_bounds__(kLanes* kWarps, 1) columns(const Plan plan, const Memory<Number> memory,
                                                          const typename Fn::Attrs p) {
  using V = Value<Number>;
  constexpr int kCount = kWide<X>;
  __shared__ Number joined[kCount][kLanes * kWarps];
  const uint32_t thread = threadIdx.y * kLanes + threadIdx.x, rows = kLanes * kWarps / plan.lanes;
  const uint32_t row = thread / plan.lanes, lane = thread % plan.lanes;
  const uint32_t results = plan.lanes * kCount, result = blockIdx.x * results + lane * kCount;
  const uint32_t begin = blockIdx.y * plan.part, end = min(plan.elements, begin + plan.part);
  V states[kCount], m[kCount];
#pragma unroll
  for (int k = 0; k < kCount; ++k) states[k] = Fn::template start<V>();
  if (result < plan.results) {
    const uint32_t offset = offset_of(result, plan.kept_rank, plan.kept_shape, plan.kept_x);
#pragma unroll
    for (int k = 0; k < kCount; ++k) m[k] = shift_of(memory, result + k);
    take_accesses<Fn, Number, X, kCount>(plan, p, m, offset, {begin + row, end, rows, 1}, states);
  }
#pragma unroll
  for (int k = 0; k < kCount; ++k) joined[k][thread] = states[k].raw;
  for (uint32_t half = rows / 2; half > 0; half /= 2) {
    __syncthreads();
    if (row >= half) continue;
#pragma unroll
    for (int k = 0; k < kCount; ++k) {
      const V other = V::of(joined[k][thread + half * plan.lanes]);
      joined[k][thread] = Fn::merge(V::of(joined[k][thread]), other).raw;
    }
  }
  __syncthreads();
  const uint32_t own = blockIdx.x * results + thread;
  if (thread >= results || own >= plan.results) return;
  put_state<Fn>(plan, memory, p, own, V::of(joined[thread % kCount][thread / kCount]));
}

// A warp for each result.
template <class Fn, class Number>
__global__ void __launch_bounds__(kLanes* kWarps, 1) join_parts(const Plan plan, const Memory<Number> memory,
                                                             const typename Fn::Attrs p) {
  const uint32_t result = blockIdx.x * kWarps + threadIdx.y;
  Value<Number> state = Fn::template start<Value<Number>>();
  for (uint32_t part = threadIdx.x; part < plan.parts && result < plan.results; part += kLanes) {
    state = Fn::merge(state, Value<Number>::of(memory.states[part * plan.results + result]));
  }
  state = join_lanes<Fn>(state);
  if (result < plan.results && threadIdx.x == 0) put_result<Fn>(plan, memory, p, result, state);
}

}  // namespace npu::reduce
