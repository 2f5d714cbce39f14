#include "ops/quantized/host_panels.h"

#include <cstring>

#include "ops/copy/copy.h"

namespace npu::quantized {
namespace {

TensorDesc matrix_of_words(const void* data, int64_t rows, int64_t columns, int64_t row, int64_t column) {
  TensorDesc desc{};
  desc.data = const_cast<void*>(data);
  desc.dtype = kFloat32;  // any of 4 bytes: elements are moved as they are
  desc.rank = 2;
  desc.numel = rows * columns;
  desc.shape[0] = rows, desc.shape[1] = columns;
  desc.strides[0] = row, desc.strides[1] = column;
  return desc;
}

}  // namespace

void Columns::read_words(int64_t from, int64_t bytes, uint32_t* words) const {
  alignas(64) uint32_t rows[kMostWidth * kMostBytes / 4];
  const int64_t row_bytes = problem.row_bytes(), depth = (bytes + 3) / 4;
  const uint8_t* const source = problem.integers + first * row_bytes + from;
  if (count < width || bytes % 4 != 0) std::memset(rows, 0, size_t(width * depth * 4));
  for (int64_t i = 0; i < count; ++i) std::memcpy(rows + i * depth, source + i * row_bytes, size_t(bytes));
  (void)copy_on_host(matrix_of_words(rows, depth, width, 1, depth), matrix_of_words(words, depth, width, width, 1));
}

void Columns::read_scales(int64_t first_group, int64_t groups, float* scales) const {
  for (int64_t group = 0; group < groups; ++group) {
    const float* const of_group = problem.scales + first * problem.groups + first_group + group;
    for (int64_t i = 0; i < width; ++i) *scales++ = i < count ? of_group[i * problem.groups] : 0.0f;
  }
}

}  // namespace npu::quantized
