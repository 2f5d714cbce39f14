// The device code of reductions. `rows`: a block or a warp for each result; `columns`: a thread for each of
// 32 neighbouring results, and 8 rows of them. Where results are few their elements are split into parts,
// whose states `join_parts` joins. The order of joins depends on shapes alone.
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
  void* y;
  Element x_element, y_element;
  int kept_rank, reduced_rank;
  FastDivision kept_shape[NPU_MAX_RANK], reduced_shape[NPU_MAX_RANK];
  uint32_t kept_x[NPU_MAX_RANK], kept_y[NPU_MAX_RANK], reduced_x[NPU_MAX_RANK];
  uint32_t results, elements;  // elements of each result
  uint32_t parts, part;        // of the elements, and the size of each
  bool is_row;                 // the elements are contiguous
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

template <class Number, class X>
__device__ Value<Number> element_at(const Plan& plan, uint32_t at) {
  if constexpr (std::is_same_v<X, AnyElement>) {
    return pointwise::read_element<Number>(plan.x, plan.x_element, at);
  } else {
    return pointwise::read(static_cast<const X*>(plan.x)[at]);
  }
}

__device__ inline uint32_t offset_of(uint32_t index, int rank, const FastDivision* shape,
                                     const uint32_t* strides) {
  uint32_t offset = 0;
#pragma unroll
  for (int axis = 0; axis < NPU_MAX_RANK; ++axis) {
    if (axis == rank) break;
    uint32_t place;
    shape[axis](index, &index, &place);
    offset += place * strides[axis];
  }
  return offset;
}

// The state of the elements of a part that this thread, of `threads`, reads: 16 bytes at a time where it can.
template <class Fn, class Number, class X>
__device__ Value<Number> state_of_row(const Plan& plan, const typename Fn::Attrs& p, Value<Number> m,
                                      uint32_t offset,
                                      uint32_t begin, uint32_t end, uint32_t thread, uint32_t threads) {
  using V = Value<Number>;
  V state = Fn::template start<V>();
  if constexpr (!std::is_same_v<X, AnyElement>) {
    const X* row = static_cast<const X*>(plan.x) + offset + begin;
    if (plan.is_row && reinterpret_cast<uintptr_t>(row) % kVectorBytes == 0) {
      constexpr int kCount = pointwise::kAccess<X, X>;
      using Input = pointwise::Access<X, kCount>;
      const uint32_t whole = (end - begin) / kCount;
      V states[kCount];
#pragma unroll
      for (int k = 0; k < kCount; ++k) states[k] = state;
      for (uint32_t i = thread; i < whole; i += threads) {
        const Input items = reinterpret_cast<const Input*>(row)[i];
#pragma unroll
        for (int k = 0; k < kCount; ++k) {
          states[k] = Fn::step(p, states[k], pointwise::read(items.items[k]), m);
        }
      }
#pragma unroll
      for (int half = kCount / 2; half > 0; half /= 2) {
#pragma unroll
        for (int k = 0; k < half; ++k) states[k] = Fn::merge(states[k], states[k + half]);
      }
      state = states[0];
      begin += whole * kCount;
    }
  }
  for (uint32_t i = begin + thread; i < end; i += threads) {
    const uint32_t at = plan.is_row ? i : offset_of(i, plan.reduced_rank, plan.reduced_shape, plan.reduced_x);
    state = Fn::step(p, state, element_at<Number, X>(plan, offset + at), m);
  }
  return state;
}

// Of all lanes of a warp, in the first one.
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

template <class Fn, class Number, class X>
__global__ void __launch_bounds__(kLanes* kWarps, 1) columns(const Plan plan, const Memory<Number> memory,
                                                          const typename Fn::Attrs p) {
  __shared__ Number states[kWarps][kLanes];
  const uint32_t result = blockIdx.x * kLanes + threadIdx.x;
  const uint32_t begin = blockIdx.y * plan.part, end = min(plan.elements, begin + plan.part);
  Value<Number> state = Fn::template start<Value<Number>>();
  if (result < plan.results) {
    const uint32_t offset = offset_of(result, plan.kept_rank, plan.kept_shape, plan.kept_x);
    const Value<Number> m = shift_of(memory, result);
#pragma unroll 4
    for (uint32_t i = begin + threadIdx.y; i < end; i += kWarps) {
      const uint32_t at = offset + offset_of(i, plan.reduced_rank, plan.reduced_shape, plan.reduced_x);
      state = Fn::step(p, state, element_at<Number, X>(plan, at), m);
    }
  }
  states[threadIdx.y][threadIdx.x] = state.raw;
  __syncthreads();
  if (threadIdx.y != 0 || result >= plan.results) return;
  for (int warp = 1; warp < kWarps; ++warp) {
    state = Fn::merge(state, Value<Number>::of(states[warp][threadIdx.x]));
  }
  put_state<Fn>(plan, memory, p, result, state);
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
