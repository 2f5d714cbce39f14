// The kernels of ops over rows: threads of a warp, or of a block, share a row. `Columns` reads and writes its
// places. What a thread reads of the first input stays in registers where the row is short enough.
#pragma once

#include "ops/fast_division.h"
#include "ops/pointwise/cuda_rows.cuh"
#include "ops/rows/row_call.h"

namespace npu::rows {

using pointwise::read_element;
using pointwise::write_element;

inline constexpr int kMostAlong = 5;
inline constexpr int kBlockThreads = 256;

// Offsets of a nest of one or more axes, in 32 bits.
struct DeviceNest {
  int rank;
  FastDivision shape[NPU_MAX_RANK];
  uint32_t strides[kMostAlong][NPU_MAX_RANK];

  __device__ void offsets(uint32_t i, int operands, uint32_t* at) const {
    if (rank == 1) {
      for (int k = 0; k < operands; ++k) at[k] = i * strides[k][0];
      return;
    }
    for (int k = 0; k < operands; ++k) at[k] = 0;
    for (int axis = 0; axis < rank; ++axis) {
      uint32_t index;
      shape[axis](i, &i, &index);
      for (int k = 0; k < operands; ++k) at[k] += index * strides[k][axis];
    }
  }
};

struct DeviceOperand {
  void* data;
  Element element;
};

struct DeviceRows {
  DeviceNest rows, columns;
  DeviceOperand along[kMostAlong];
  DeviceOperand numbers[2];
  uint32_t count, width;
  bool has_result;
  double eps;
};

// Places of a row of tensors of any dtype and strides.
template <class Number, int kInputs>
struct AnyColumns {
  const DeviceRows& rows;
  uint32_t start[kInputs + 1];

  __device__ AnyColumns(const DeviceRows& of, uint32_t row) : rows(of) {
    of.rows.offsets(row, kInputs + 1, start);
  }
  __device__ void load(uint32_t column, Value<Number>* in) const {
    uint32_t at[kInputs];
    rows.columns.offsets(column, kInputs, at);
#pragma unroll
    for (int k = 0; k < kInputs; ++k) {
      in[k] = read_element<Number>(rows.along[k].data, rows.along[k].element, start[k] + at[k]);
    }
  }
  __device__ void store(uint32_t column, Value<Number> value) const {
    uint32_t at[kInputs + 1];
    rows.columns.offsets(column, kInputs + 1, at);
    write_element(value, rows.along[kInputs].data, rows.along[kInputs].element, start[kInputs] + at[kInputs]);
  }
};

// Contiguous rows of one dtype.
template <class X, int kInputs>
struct PlainColumns {
  const X* in_[kInputs];
  X* out_;

  __device__ PlainColumns(const DeviceRows& of, uint32_t row) {
    uint32_t start[kInputs + 1];
    of.rows.offsets(row, kInputs + 1, start);
#pragma unroll
    for (int k = 0; k < kInputs; ++k) in_[k] = static_cast<const X*>(of.along[k].data) + start[k];
    out_ = static_cast<X*>(of.along[kInputs].data) + start[kInputs];
  }
  __device__ void load(uint32_t column, Value<float>* in) const {
#pragma unroll
    for (int k = 0; k < kInputs; ++k) in[k] = pointwise::read(in_[k][column]);
  }
  __device__ void store(uint32_t column, Value<float> value) const {
    out_[column] = pointwise::write<X>(value);
  }
};

// The total over the threads of a row, the same in each of them; `shared` has a number for each warp.
template <bool kIsSum, int kThreadsOfRow, class V>
__device__ V total_of_row(V value, V* shared) {
  for (int distance = 16; distance > 0; distance /= 2) {
    value = join<kIsSum>(value, V::of(__shfl_xor_sync(~0u, value.raw, distance)));
  }
  if constexpr (kThreadsOfRow > 32) {
    const int warp = static_cast<int>(threadIdx.x) / 32;
    if (threadIdx.x % 32 == 0) shared[warp] = value;
    __syncthreads();
    value = shared[0];
    for (int i = 1; i < kThreadsOfRow / 32; ++i) value = join<kIsSum>(value, shared[i]);
    __syncthreads();
  }
  return value;
}

// One row. kHeld: places of a thread whose first input is held; 0 reads it again in each pass.
template <class F, class Columns, class Number, int kThreadsOfRow, int kHeld>
struct RowOfThreads {
  using V = Value<Number>;
  const DeviceRows& rows;
  Columns columns;
  V* shared;
  uint32_t thread;
  V s[kNumbers] = {V(0), V(0), V(0), V(0)};
  V held[kHeld + 1];

  __device__ RowOfThreads(const DeviceRows& of, uint32_t row, V* memory)
      : rows(of), columns(of, row), shared(memory), thread(threadIdx.x % kThreadsOfRow) {
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      V in[F::kInputs];
      if (thread + i * kThreadsOfRow < of.width) columns.load(thread + i * kThreadsOfRow, in);
      held[i] = in[0];
    }
  }

  // What is not used of the inputs is not read.
  template <class Each>
  __device__ void each_place(Each each) {
    V in[F::kInputs];
    if constexpr (kHeld == 0) {
      for (uint32_t column = thread; column < rows.width; column += kThreadsOfRow) {
        columns.load(column, in);
        each(column, in);
      }
    } else {
#pragma unroll
      for (int i = 0; i < kHeld; ++i) {
        const uint32_t column = thread + i * kThreadsOfRow;
        if (column >= rows.width) continue;
        if constexpr (F::kInputs > 1) columns.load(column, in);
        in[0] = held[i];
        each(column, in);
      }
    }
  }

  template <class Step>
  __device__ void reduce() {
    V total = Step::is_sum ? V(0) : V(-INFINITY);
    each_place(
        [&](uint32_t, const V* in) { total = join<Step::is_sum>(total, Step::template term<V>(in, s)); });
    total = total_of_row<Step::is_sum, kThreadsOfRow>(total, shared);
    Step::template finish<V>(total, V(rows.width), rows.eps, s);
  }

  // The kept term is computed again.
  template <class... Each>
  __device__ V kept(Steps<Each...>, const V* in) const {
    using Step = typename KeptOf<Each...>::type;
    if constexpr (std::is_void_v<Step>) return V(0);
    else return Step::template term<V>(in, s);
  }

  template <class... Each>
  __device__ void run(uint32_t row, Steps<Each...> steps) {
#pragma unroll
    for (int i = 0; i < F::kGiven; ++i) {
      s[F::kFirstNumber + i] = read_element<Number>(rows.numbers[i].data, rows.numbers[i].element, row);
    }
    (reduce<Each>(), ...);
    if constexpr (F::kHasResult) {
      if (rows.has_result) {
        each_place([&](uint32_t column, const V* in) {
          columns.store(column, F::template result<V>(in, kept(steps, in), s));
        });
      }
    }
    if (thread != 0) return;
#pragma unroll
    for (int i = 0; i < F::kMade; ++i) {
      if (rows.numbers[i].data)
        write_element(s[F::kFirstNumber + i], rows.numbers[i].data, rows.numbers[i].element, row);
    }
  }
};

template <class F, class Columns, class Number, int kThreadsOfRow, int kHeld>
__global__ void __launch_bounds__(kBlockThreads, 1) row_kernel(const DeviceRows rows) {
  __shared__ Value<Number> shared[kBlockThreads / 32];
  constexpr uint32_t rows_of_block = kBlockThreads / kThreadsOfRow;
  const uint32_t row = blockIdx.x * rows_of_block + threadIdx.x / kThreadsOfRow;
  if (row >= rows.count) return;  // a whole warp, or block
  RowOfThreads<F, Columns, Number, kThreadsOfRow, kHeld>(rows, row, shared)
      .run(row, typename F::Reductions{});
}

}  // namespace npu::rows
