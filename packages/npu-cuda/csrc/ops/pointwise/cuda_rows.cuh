// The two kernels of every pointwise op. `flat`: operands that are one row of elements aligned to 16 bytes,
// all of one dtype, or single elements. `nested`: everything else, neighbours along the innermost axis a
// thread, dtypes read at run time.
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

// Elements of a thread of `nested`, along the innermost axis.
template <class Number>
inline constexpr int kNeighbours = std::is_same_v<Number, float> ? 4 : 1;

template <class Number>
struct Neighbours {
  Value<Number> of[kNeighbours<Number>];
};

template <int kCount>
struct NestedRows {
  void* data[kCount];
  Element element[kCount];
  uint8_t bytes[kCount];  // of an element
  uint32_t wide;          // a bit for each operand whose neighbours are one aligned access of up to 16 bytes
  int rank;
  uint32_t threads;
  FastDivision threads_of_row;
  FastDivision shape[NPU_MAX_RANK];
  uint32_t strides[kCount][NPU_MAX_RANK];
};

template <class Number, class T>
__device__ Value<Number> number_of(T item) {
  if constexpr (std::is_same_v<T, Bool>) return Value<Number>::of(static_cast<Number>(item.byte != 0));
  else if constexpr (std::is_arithmetic_v<T>) return Value<Number>::of(static_cast<Number>(item));
  else return Value<Number>::of(static_cast<Number>(widen(item)));
}

// Reads the elements at the offsets `at`; all are asked for before one is used.
template <class Number, int kCount>
__device__ void read_elements(const void* data, Element element, const uint32_t* at, Value<Number>* values) {
  const auto as = [&]<class T>(const T* elements) {
    T items[kCount];
#pragma unroll
    for (int k = 0; k < kCount; ++k) items[k] = elements[at[k]];
#pragma unroll
    for (int k = 0; k < kCount; ++k) values[k] = number_of<Number>(items[k]);
  };
  switch (element) {
    case Element::Float32: return as(static_cast<const float*>(data));
    case Element::Float16: return as(static_cast<const __half*>(data));
    case Element::BFloat16: return as(static_cast<const __nv_bfloat16*>(data));
    case Element::Float64: return as(static_cast<const double*>(data));
    case Element::Int64: return as(static_cast<const int64_t*>(data));
    case Element::Int32: return as(static_cast<const int32_t*>(data));
    case Element::Int16: return as(static_cast<const int16_t*>(data));
    case Element::Int8: return as(static_cast<const int8_t*>(data));
    case Element::UInt8: return as(static_cast<const uint8_t*>(data));
    default: return as(static_cast<const Bool*>(data));
  }
}

template <class Number>
__device__ Value<Number> read_element(const void* data, Element element, uint32_t at) {
  Value<Number> value;
  read_elements<Number, 1>(data, element, &at, &value);
  return value;
}

template <class T, class Number>
__device__ T item_of(Value<Number> value) {
  const Number x = value.raw;
  if constexpr (std::is_same_v<T, Bool>) return {x != 0};
  else if constexpr (std::is_integral_v<T>) return static_cast<T>(static_cast<int64_t>(x));
  else if constexpr (std::is_arithmetic_v<T>) return static_cast<T>(x);
  else return narrow<T>(static_cast<float>(x));
}

template <class Number>
__device__ void write_element(Value<Number> value, void* data, Element element, uint32_t at) {
  const auto as = [&]<class T>(T* elements) { elements[at] = item_of<T>(value); };
  switch (element) {
    case Element::Float32: return as(static_cast<float*>(data));
    case Element::Float16: return as(static_cast<__half*>(data));
    case Element::BFloat16: return as(static_cast<__nv_bfloat16*>(data));
    case Element::Float64: return as(static_cast<double*>(data));
    case Element::Int64: return as(static_cast<int64_t*>(data));
    case Element::Int32: return as(static_cast<int32_t*>(data));
    case Element::Int16: return as(static_cast<int16_t*>(data));
    case Element::Int8: return as(static_cast<int8_t*>(data));
    case Element::UInt8: return as(static_cast<uint8_t*>(data));
    default: return as(static_cast<Bool*>(data));
  }
}

// The offset of each operand of the first element of a thread; returns how many elements it has.
template <class Number, int kCount>
__device__ uint32_t nested_offsets(const NestedRows<kCount>& rows, uint32_t thread, uint32_t* at) {
  uint32_t row, place;
  rows.threads_of_row(thread, &row, &place);
  place *= kNeighbours<Number>;
#pragma unroll
  for (int k = 0; k < kCount; ++k) at[k] = place * rows.strides[k][0];
#pragma unroll 1
  for (int axis = 1; axis < rows.rank; ++axis) {
    uint32_t index;
    rows.shape[axis](row, &row, &index);
#pragma unroll
    for (int k = 0; k < kCount; ++k) at[k] += index * rows.strides[k][axis];
  }
  return min(uint32_t{kNeighbours<Number>}, rows.shape[0].divisor - place);
}

// The bits of four neighbours of up to 4 bytes each.
struct alignas(kVectorBytes) Words {
  uint32_t of[4];
};

__device__ inline Words load_words(const void* data, uint32_t at, uint32_t bytes) {
  Words words;
  const char* from = static_cast<const char*>(data) + uint64_t{at} * bytes;
  if (bytes == 4) {
    words = *reinterpret_cast<const Words*>(from);
  } else if (bytes == 2) {
    const auto half = *reinterpret_cast<const Access<uint32_t, 2>*>(from);
    words.of[0] = half.items[0];
    words.of[1] = half.items[1];
  } else {
    words.of[0] = *reinterpret_cast<const uint32_t*>(from);
  }
  return words;
}

__device__ inline void store_words(const Words& words, void* data, uint32_t at, uint32_t bytes) {
  char* to = static_cast<char*>(data) + uint64_t{at} * bytes;
  if (bytes == 4) *reinterpret_cast<Words*>(to) = words;
  else if (bytes == 2) *reinterpret_cast<Access<uint32_t, 2>*>(to) = {words.of[0], words.of[1]};
  else *reinterpret_cast<uint32_t*>(to) = words.of[0];
}

// Calls f with an item of an element type of up to 4 bytes.
template <class F>
__device__ auto with_narrow_item(Element element, F f) {
  switch (element) {
    case Element::Float32: return f(float{});
    case Element::Float16: return f(__half{});
    case Element::BFloat16: return f(__nv_bfloat16{});
    case Element::Int32: return f(int32_t{});
    case Element::Int16: return f(int16_t{});
    case Element::Int8: return f(int8_t{});
    case Element::UInt8: return f(uint8_t{});
    default: return f(Bool{});
  }
}

__device__ inline Neighbours<float> numbers_of(const Words& words, Element element) {
  return with_narrow_item(element, [&]<class T>(T) {
    Access<T, 4> items;
    memcpy(&items, &words, sizeof(items));
    Neighbours<float> numbers;
#pragma unroll
    for (int i = 0; i < 4; ++i) numbers.of[i] = number_of<float>(items.items[i]);
    return numbers;
  });
}

__device__ inline Words words_of(const Neighbours<float>& numbers, Element element) {
  return with_narrow_item(element, [&]<class T>(T) {
    Access<T, 4> items;
#pragma unroll
    for (int i = 0; i < 4; ++i) items.items[i] = item_of<T>(numbers.of[i]);
    Words words;
    memcpy(&words, &items, sizeof(items));
    return words;
  });
}

// Neighbours that are no access. A function of its own, since each kernel would have it for each operand.
[[gnu::noinline]] __device__ inline Neighbours<float> read_apart(const void* data, Element element, uint32_t at,
                                                                 uint32_t stride, uint32_t count) {
  Neighbours<float> numbers;
  if (stride == 0) {
    const auto number = read_element<float>(data, element, at);
    return {{number, number, number, number}};
  }
  uint32_t places[4];
#pragma unroll
  for (uint32_t i = 0; i < 4; ++i) places[i] = at + min(i, count - 1) * stride;
  read_elements<float, 4>(data, element, places, numbers.of);
  return numbers;
}

[[gnu::noinline]] __device__ inline void write_apart(Neighbours<float> numbers, void* data, Element element,
                                                     uint32_t at, uint32_t stride, uint32_t count) {
#pragma unroll
  for (uint32_t i = 0; i < 4; ++i) {
    if (i < count) write_element(numbers.of[i], data, element, at + i * stride);
  }
}

// The inputs from `first` on; those that are wide are all asked for before one is used.
template <class Number, int first, int end, int kCount>
__device__ void read_nested(const NestedRows<kCount>& rows, const uint32_t* at, uint32_t count,
                            Neighbours<Number>* in) {
  if constexpr (kNeighbours<Number> == 1) {
#pragma unroll
    for (int k = first; k < end; ++k) in[k].of[0] = read_element<Number>(rows.data[k], rows.element[k], at[k]);
  } else {
    const uint32_t wide = count == kNeighbours<Number> ? rows.wide : 0;
    Words words[end + 1];
#pragma unroll
    for (int k = first; k < end; ++k) {
      if (wide >> k & 1) words[k] = load_words(rows.data[k], at[k], rows.bytes[k]);
    }
#pragma unroll
    for (int k = first; k < end; ++k) {
      if (wide >> k & 1) in[k] = numbers_of(words[k], rows.element[k]);
      else in[k] = read_apart(rows.data[k], rows.element[k], at[k], rows.strides[k][0], count);
    }
  }
}

template <class Fn, class Number>
__device__ void write_nested(const NestedRows<kOperands<Fn>>& rows, const Neighbours<Number>* out,
                             const uint32_t* at, uint32_t count) {
#pragma unroll
  for (int i = 0; i < kOutputs<Fn>; ++i) {
    const int k = kInputs<Fn> + i;
    if constexpr (kNeighbours<Number> == 1) {
      write_element(out[i].of[0], rows.data[k], rows.element[k], at[k]);
    } else if (count == kNeighbours<Number> && rows.wide >> k & 1) {
      store_words(words_of(out[i], rows.element[k]), rows.data[k], at[k], rows.bytes[k]);
    } else {
      write_apart(out[i], rows.data[k], rows.element[k], at[k], rows.strides[k][0], count);
    }
  }
}

template <class Fn, class Number>
__device__ void apply_nested(const typename Fn::Attrs& attrs, const Neighbours<Number>* in, Neighbours<Number>* out) {
#pragma unroll
  for (int i = 0; i < kNeighbours<Number>; ++i) {
    Value<Number> values[kInputs<Fn> + 1];
#pragma unroll
    for (int k = 0; k < kInputs<Fn>; ++k) values[k] = in[k].of[i];
    const auto results = apply<Fn>(attrs, values);
#pragma unroll
    for (int k = 0; k < kOutputs<Fn>; ++k) out[k].of[i] = results.of[k];
  }
}

template <class Fn, class Number>
__global__ void __launch_bounds__(kThreads) nested(const NestedRows<kOperands<Fn>> rows,
                                                   const typename Fn::Attrs attrs) {
  const uint32_t thread = blockIdx.x * blockDim.x + threadIdx.x;
  if (thread >= rows.threads) return;
  uint32_t at[kOperands<Fn>];
  const uint32_t count = nested_offsets<Number>(rows, thread, at);
  Neighbours<Number> in[kInputs<Fn> + 1], out[kOutputs<Fn>];
  read_nested<Number, 0, kInputs<Fn>>(rows, at, count, in);
  apply_nested<Fn>(attrs, in, out);
  write_nested<Fn>(rows, out, at, count);
}

}  // namespace npu::pointwise
