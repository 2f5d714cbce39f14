// Products of rows of A by rows of W as tasks of the threads: a task is some rows of W, times all of A. Rows of tensors
// are read and written as float32.
#pragma once

#include <algorithm>

#include "ops/pointwise/host_rows.h"
#include "ops/quantized/quantized.h"
#include "ops/threads.h"

namespace npu::quantized {

// The bytes of integers of a task: its rows are read in places that are far from one another.
inline constexpr int64_t kLeastTaskBytes = 32 << 10, kMostTaskBytes = 1 << 20, kCachedTaskBytes = 256 << 10;
inline constexpr int64_t kMostRowsOfTask = 4096, kMostRowsOfPart = 4;

inline const void* place(const gemm::Operand& operand, int64_t offset) {
  return static_cast<const char*>(operand.data) + offset * (operand.element == gemm::Element::Float32 ? 4 : 2);
}
inline void read(const gemm::Operand& from, int64_t offset, int64_t stride, float* numbers, int64_t count) {
  pointwise::reader(from.element, pointwise::kFloat32)(place(from, offset), stride, numbers, count);
}
inline void write(const float* numbers, const gemm::Operand& to, int64_t offset, int64_t count) {
  pointwise::writer(to.element, pointwise::kFloat32)(numbers, const_cast<void*>(place(to, offset)), to.column, count);
}

// Whether rows of A are floats beside one another, at equal distances.
inline bool is_direct(const Problem& problem) {
  const gemm::Problem& product = problem.product;
  return product.batch_rank == 0 && product.a.element == gemm::Element::Float32 && product.a.column == 1;
}

// A multiple of the rows that are multiplied at once, so that each of W always is by the same loop.
inline int64_t rows_of_task(int64_t rows, int64_t row_bytes, bool is_read_again) {
  const int64_t parts = thread_count() > 1 ? 2 * thread_count() : 1;
  const int64_t most = std::min(kMostRowsOfTask, (is_read_again ? kCachedTaskBytes : kMostTaskBytes) / row_bytes);
  const int64_t wanted = std::min(std::max((rows + parts - 1) / parts, kLeastTaskBytes / row_bytes), most);
  return std::max<int64_t>(4, wanted / 4 * 4);
}

// A part of D: its place, and its sums before the bias is added, rows of kMostRowsOfTask of which `columns` are used.
struct Part {
  int64_t row, rows, column, columns;
  float* sums;
};

// Has `dots(part)` compute the sums of each part of D, and writes them.
template <class Compute>
void multiply_by_tasks(const Problem& problem, Compute dots) {
  const int64_t rows = problem.rows(), n = problem.product.n;
  const int64_t size = rows_of_task(n, std::max<int64_t>(1, problem.row_bytes()), rows > kMostRowsOfPart);
  parallel_tasks((n + size - 1) / size, [&](int64_t task) {
    alignas(64) float sums[kMostRowsOfPart * kMostRowsOfTask], bias[kMostRowsOfTask];
    const gemm::Operand& d = problem.product.d;
    Part part{0, 0, task * size, std::min(size, n - task * size), sums};
    const bool has_bias = problem.bias.data != nullptr;
    const int64_t step = problem.bias.column;
    if (has_bias) read(problem.bias, part.column * step, step, bias, part.columns);
    for (; part.row < rows; part.row += part.rows) {
      part.rows = std::min(kMostRowsOfPart, rows - part.row);
      dots(part);
      for (int64_t j = 0; j < part.rows; ++j) {
        float* const found = sums + j * kMostRowsOfTask;
        for (int64_t i = 0; has_bias && i < part.columns; ++i) found[i] += bias[i];
        write(found, d, problem.offset_of_row(d, part.row + j) + part.column * d.column, part.columns);
      }
    }
  });
}

}  // namespace npu::quantized
