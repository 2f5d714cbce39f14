// The gradients of gamma and beta of norms of the last axes: sums over all rows. A block adds 32 columns of a
// chunk of the rows, and then each column adds its chunks in their order, so that the sum does not depend on
// the device.
#pragma once

#include "ops/elementwise_grid.h"
#include "ops/rows/cuda_loop.cuh"

namespace npu::rows {

inline constexpr int kSumColumns = 32, kSumRows = 8;
inline constexpr int64_t kMostChunks = 64, kRowsOfChunk = 64;

struct SumChunks {
  uint32_t count, rows;
};

inline SumChunks sum_chunks(int64_t rows) {
  const int64_t count = std::clamp<int64_t>(rows / kRowsOfChunk, 1, kMostChunks);
  const int64_t share = (rows + count - 1) / count;
  return {static_cast<uint32_t>((rows + share - 1) / share), static_cast<uint32_t>(share)};
}

// Partial sums: of gamma, then of beta, for each chunk.
template <class Number, bool kHasMean>
__global__ void __launch_bounds__(kThreads, 1)
    sum_chunk(const DeviceRows rows, const SumChunks chunks, Number* partial) {
  using V = Value<Number>;
  __shared__ V gamma[kSumRows][kSumColumns];
  __shared__ V beta[kSumRows][kSumColumns];
  const uint32_t x = threadIdx.x % kSumColumns, y = threadIdx.x / kSumColumns;
  const uint32_t column = blockIdx.x * kSumColumns + x, end = min(rows.count, (blockIdx.y + 1) * chunks.rows);
  V sums[2] = {V(0), V(0)};
  for (uint32_t row = blockIdx.y * chunks.rows + y; row < end && column < rows.width; row += kSumRows) {
    V in[2], mean = V(0);
    AnyColumns<Number, 2>(rows, row).load(column, in);
    if constexpr (kHasMean) mean = read_element<Number>(rows.numbers[0].data, rows.numbers[0].element, row);
    const DeviceOperand rstd = rows.numbers[kHasMean ? 1 : 0];
    sums[0] = sums[0] + in[1] * ((in[0] - mean) * read_element<Number>(rstd.data, rstd.element, row));
    sums[1] = sums[1] + in[1];
  }
  gamma[y][x] = sums[0];
  beta[y][x] = sums[1];
  __syncthreads();
  if (y > 1 || column >= rows.width) return;
  const auto& each = y == 0 ? gamma : beta;
  V total = each[0][x];
  for (int i = 1; i < kSumRows; ++i) total = total + each[i][x];
  partial[(blockIdx.y * 2 + y) * rows.width + column] = total.raw;
}

template <class Number>
__global__ void __launch_bounds__(kThreads, 1)
    add_chunks(const Number* partial, uint32_t chunks, uint32_t width, DeviceOperand to) {
  const uint32_t column = blockIdx.x * kThreads + threadIdx.x;
  if (column >= width) return;
  Value<Number> total(0);
  for (uint32_t chunk = 0; chunk < chunks; ++chunk) {
    total = total + Value<Number>::of(partial[int64_t{chunk} * 2 * width + column]);
  }
  write_element(total, to.data, to.element, column);
}

}  // namespace npu::rows
