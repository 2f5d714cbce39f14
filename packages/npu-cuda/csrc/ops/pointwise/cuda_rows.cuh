// The two kernels of every pointwise op. `flat`: operands that are one row of elements aligned to 16 bytes,
// all of one dtype, or single elements. `nested`: everything else, one element a thread, dtypes read at run
// time.
#pragma once

#include "ops/device_floats.h"
#include "ops/elementwise_grid.h"
#include "ops/fast_division.h"
#include "ops/pointwise/elements.h"
#include "ops/pointwise/op.h"

namespace npu {

template <>
inline constexpr DType kDTypeOf<pointwise::Bool>{6, 8, 1};

}  // namespace npu

namespace npu::pointwise {

template <class Fn>
inline constexpr int kOperands = kInputs<Fn> + kOutputs<Fn>;

template <int kIn, int kOut>
struct FlatRows {
  const void* in[kIn + 1];
  void* out[kOut];
  uint32_t constants;  // a bit for each input that is one element
};

template <class Fn>
using FlatRowsOf = FlatRows<kInputs<Fn>, kOutputs<Fn>>;

// Elements of one access: 16 bytes of the wider of the two dtypes.
template <class X, class Y>
inline constexpr int kAccess = kVectorBytes / (sizeof(X) > sizeof(Y) ? sizeof(X) : sizeof(Y));

template <class T, int kCount>
struct alignas(sizeof(T) * kCount) Access {
  T items[kCount];
};

template <class T>
__device__ Value<float> read(T item) { return Value<float>::of(widen(item)); }

template <class T>
__device__ T write(Value<float> x) {
  if constexpr (std::is_same_v<T, Bool>) return {x.raw != 0};
  else return narrow<T>(x.raw);
}

// Blocks at a time that registers must suffice for: one where there are many operands, so that none spill; 0: any.
template <class Fn>
inline constexpr int kBlocksAtATime = kOperands<Fn> > 10 ? 1 : 0;

template <class Fn, class X, class Y>
__global__ void __launch_bounds__(kThreads, kBlocksAtATime<Fn>)
    flat(const FlatRowsOf<Fn> rows, const typename Fn::Attrs attrs, int64_t n) {
  constexpr int kCount = kAccess<X, Y>;
  using Input = Access<X, kCount>;
  using Output = Access<Y, kCount>;
  const int64_t at = first_item(), whole = n / kCount;
  Value<float> constant[kInputs<Fn> + 1];
#pragma unroll
  for (int k = 0; k < kInputs<Fn>; ++k) {
    if (rows.constants >> k & 1) constant[k] = read(*static_cast<const X*>(rows.in[k]));
  }
  if (at < whole) {
    Input x[kInputs<Fn> + 1];
    Output y[kOutputs<Fn>];
#pragma unroll
    for (int k = 0; k < kInputs<Fn>; ++k) {
      if (!(rows.constants >> k & 1)) x[k] = static_cast<const Input*>(rows.in[k])[at];
    }
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      Value<float> values[kInputs<Fn> + 1];
#pragma unroll
      for (int k = 0; k < kInputs<Fn>; ++k) values[k] = rows.constants >> k & 1 ? constant[k] : read(x[k].items[i]);
      const auto results = apply<Fn>(attrs, values);
#pragma unroll
      for (int k = 0; k < kOutputs<Fn>; ++k) y[k].items[i] = write<Y>(results.of[k]);
    }
#pragma unroll
    for (int k = 0; k < kOutputs<Fn>; ++k) static_cast<Output*>(rows.out[k])[at] = y[k];
  }
  const int64_t rest = whole * kCount + threadIdx.x;
  if (blockIdx.x != 0 || rest >= n) return;
  Value<float> values[kInputs<Fn> + 1];
  for (int k = 0; k < kInputs<Fn>; ++k) {
    values[k] = rows.constants >> k & 1 ? constant[k] : read(static_cast<const X*>(rows.in[k])[rest]);
  }
  const auto results = apply<Fn>(attrs, values);
  for (int k = 0; k < kOutputs<Fn>; ++k) static_cast<Y*>(rows.out[k])[rest] = write<Y>(results.of[k]);
}

template <int kCount>
struct NestedRows {
  void* data[kCount];
  Element element[kCount];
  int rank;
  uint32_t numel;
  FastDivision shape[NPU_MAX_RANK];
  uint32_t strides[kCount][NPU_MAX_RANK];
};

template <class Number>
__device__ Value<Number> read_element(const void* data, Element element, uint32_t at) {
  const auto as = [&]<class T>(T item) {
    if constexpr (std::is_arithmetic_v<T>) return Value<Number>::of(static_cast<Number>(item));
    else return Value<Number>::of(static_cast<Number>(widen(item)));
  };
  switch (element) {
    case Element::Float32: return as(static_cast<const float*>(data)[at]);
    case Element::Float16: return as(static_cast<const __half*>(data)[at]);
    case Element::BFloat16: return as(static_cast<const __nv_bfloat16*>(data)[at]);
    case Element::Float64: return as(static_cast<const double*>(data)[at]);
    case Element::Int64: return as(static_cast<const int64_t*>(data)[at]);
    case Element::Int32: return as(static_cast<const int32_t*>(data)[at]);
    case Element::Int16: return as(static_cast<const int16_t*>(data)[at]);
    case Element::Int8: return as(static_cast<const int8_t*>(data)[at]);
    case Element::UInt8: return as(static_cast<const uint8_t*>(data)[at]);
    default: return as(static_cast<const uint8_t*>(data)[at] != 0);
  }
}

template <class T>
__device__ void put(void* data, uint32_t at, T item) { static_cast<T*>(data)[at] = item; }

template <class Number>
__device__ void write_element(Value<Number> value, void* data, Element element, uint32_t at) {
  const Number x = value.raw;
  switch (element) {
    case Element::Float32: put(data, at, static_cast<float>(x)); return;
    case Element::Float16: put(data, at, narrow<__half>(static_cast<float>(x))); return;
    case Element::BFloat16: put(data, at, narrow<__nv_bfloat16>(static_cast<float>(x))); return;
    case Element::Float64: put(data, at, static_cast<double>(x)); return;
    case Element::Int64: put(data, at, static_cast<int64_t>(x)); return;
    case Element::Int32: put(data, at, static_cast<int32_t>(static_cast<int64_t>(x))); return;
    case Element::Int16: put(data, at, static_cast<int16_t>(static_cast<int64_t>(x))); return;
    case Element::Int8: put(data, at, static_cast<int8_t>(static_cast<int64_t>(x))); return;
    case Element::UInt8: put(data, at, static_cast<uint8_t>(static_cast<int64_t>(x))); return;
    default: put(data, at, x != 0); return;
  }
}

// The offset of each operand of element i.
template <int kCount>
__device__ void nested_offsets(const NestedRows<kCount>& rows, uint32_t i, uint32_t* at) {
#pragma unroll
  for (int k = 0; k < kCount; ++k) at[k] = 0;
#pragma unroll
  for (int axis = 0; axis < NPU_MAX_RANK; ++axis) {
    if (axis == rows.rank) break;
    uint32_t index;
    rows.shape[axis](i, &i, &index);
#pragma unroll
    for (int k = 0; k < kCount; ++k) at[k] += index * rows.strides[k][axis];
  }
}

template <class Fn, class Number>
__device__ void write_nested(const NestedRows<kOperands<Fn>>& rows, const Results<Value<Number>, kOutputs<Fn>>& results,
                             const uint32_t* at) {
#pragma unroll
  for (int k = 0; k < kOutputs<Fn>; ++k) {
    constexpr int first = kInputs<Fn>;
    write_element(results.of[k], rows.data[first + k], rows.element[first + k], at[first + k]);
  }
}

template <class Fn, class Number>
__global__ void __launch_bounds__(kThreads) nested(const NestedRows<kOperands<Fn>> rows,
                                                   const typename Fn::Attrs attrs) {
  const uint32_t i = blockIdx.x * kThreads + threadIdx.x;
  if (i >= rows.numel) return;
  uint32_t at[kOperands<Fn>];
  nested_offsets(rows, i, at);
  Value<Number> values[kInputs<Fn> + 1];
#pragma unroll
  for (int k = 0; k < kInputs<Fn>; ++k) values[k] = read_element<Number>(rows.data[k], rows.element[k], at[k]);
  write_nested<Fn>(rows, apply<Fn>(attrs, values), at);
}

}  // namespace npu::pointwise
