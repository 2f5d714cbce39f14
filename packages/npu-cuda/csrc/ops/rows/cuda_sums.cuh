// The gradients of gamma and beta of norms of the last axes: sums over all rows. A block adds 32 accesses to
// columns of a chunk of the rows, and then each column adds its chunks in a fixed order, so that the sum does
// not depend on the device.
#pragma once

#include "ops/elementwise_grid.h"
#include "ops/rows/cuda_loop.cuh"

namespace npu::rows {

inline constexpr int kSumColumns = 32, kSumRows = 8;
static_assert(kSumColumns * kSumRows == kThreads);
inline constexpr int64_t kMostChunks = 128, kRowsOfChunk = 64;

struct SumChunks {
  uint32_t count, rows;
};

inline SumChunks sum_chunks(int64_t rows) {
  const int64_t count = std::clamp<int64_t>(rows / kRowsOfChunk, 1, kMostChunks);
  const int64_t share = (rows + count - 1) / count;
  return {static_cast<uint32_t>((rows + share - 1) / share), static_cast<uint32_t>(share)};
}

// A thread's sums over the rows of a chunk, in memory for each of them.
template <class Columns, class Number, bool kHasMean>
__device__ void sum_rows(const DeviceRows& rows, const SumChunks& chunks,
                         Value<Number> (*shared)[kSumColumns * Columns::kVector]) {
  using V = Value<Number>;
  constexpr int kVector = Columns::kVector, kAtOnce = 2;  // rows whose reads do not wait for each other
  const uint32_t x = threadIdx.x % kSumColumns, y = threadIdx.x / kSumColumns;
  const uint32_t begin = blockIdx.y * chunks.rows, end = min(rows.count, begin + chunks.rows);
  const Places places = places_of<Columns, kSumColumns>(rows, x, blockIdx.x);
  const DeviceOperand mean_of = rows.numbers[0], rstd_of = rows.numbers[kHasMean ? 1 : 0];
  V sums[2][kVector];
  for (int j = 0; j < kVector; ++j) sums[0][j] = sums[1][j] = V(0);
  for (uint32_t first = begin + y; first < end && places.count > 0; first += kSumRows * kAtOnce) {
    V in[kAtOnce][2][kVector], mean[kAtOnce], rstd[kAtOnce];
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      const uint32_t row = min(first + u * kSumRows, end - 1);
      Columns(rows, row).template load<0>(places, in[u]);
      mean[u] = kHasMean ? read_element<Number>(mean_of.data, mean_of.element, row) : V(0);
      rstd[u] = read_element<Number>(rstd_of.data, rstd_of.element, row);
    }
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      if (first + u * kSumRows >= end) break;
#pragma unroll
      for (int j = 0; j < kVector; ++j) {
        sums[0][j] = sums[0][j] + in[u][1][j] * ((in[u][0][j] - mean[u]) * rstd[u]);
        sums[1][j] = sums[1][j] + in[u][1][j];
      }
    }
  }
  for (int k = 0; k < 2; ++k) {
    for (int j = 0; j < kVector; ++j)
      shared[y * 2 + k][(places.first + j * places.step) % (kSumColumns * kVector)] = sums[k][j];
  }
}

// Partial sums: of gamma, then of beta, for each chunk.
template <class Columns, class Number, bool kHasMean>
__global__ void __launch_bounds__(kThreads, 1)
    sum_chunk(const DeviceRows rows, const SumChunks chunks, Number* partial) {
  constexpr uint32_t columns = kSumColumns * Columns::kVector;
  __shared__ Value<Number> shared[kSumRows * 2][columns];
  if (rows.is_wide) sum_rows<typename Columns::Wide, Number, kHasMean>(rows, chunks, shared);
  else sum_rows<Columns, Number, kHasMean>(rows, chunks, shared);
  __syncthreads();
  for (uint32_t i = threadIdx.x; i < 2 * columns; i += kThreads) {
    const uint32_t which = i / columns, column = blockIdx.x * columns + i % columns;
    if (column >= rows.width) continue;
    Value<Number> total = shared[which][i % columns];
    for (int y = 1; y < kSumRows; ++y) total = total + shared[y * 2 + which][i % columns];
    partial[(blockIdx.y * 2 + which) * rows.width + column] = total.raw;
  }
}

// Of gamma and beta; without data where it is not wanted.
struct SumResults {
  DeviceOperand of[2];
};

template <class Number>
__global__ void __launch_bounds__(kThreads, 1)
    add_chunks(const Number* partial, uint32_t chunks, uint32_t width, const SumResults results) {
  using V = Value<Number>;
  __shared__ V shared[kSumRows][kSumColumns];
  const DeviceOperand to = results.of[blockIdx.y];
  const uint32_t x = threadIdx.x % kSumColumns, y = threadIdx.x / kSumColumns;
  const uint32_t column = blockIdx.x * kSumColumns + x;
  V total(0);
  for (uint32_t chunk = y; chunk < chunks && column < width; chunk += kSumRows) {
    total = total + V::of(partial[(int64_t{chunk} * 2 + blockIdx.y) * width + column]);
  }
  shared[y][x] = total;
  __syncthreads();
  if (y > 0 || column >= width || !to.data) return;
  for (int i = 1; i < kSumRows; ++i) total = total + shared[i][x];
  write_element(total, to.data, to.element, column);
}

}  // namespace npu::rows
