#include "ops/attention/host_operands.h"

#include <algorithm>
#include <limits>

#include "ops/threads.h"

namespace npu::attention {

int64_t columns_for(int64_t queries) {
  const int64_t bytes = vector_bytes();
  if (bytes == 64) return queries > 32 ? 64 : queries > 16 ? 32 : 16;
  return bytes == 32 && queries > 8 ? 16 : 8;
}

Operands::Operands(const Geometry& geometry, int64_t mask_width, bool is_dense) : g_(geometry), mask_width_(mask_width) {
  const auto is_apart = [&](const View& rows, int64_t size) {
    return (rows.strides[3] != 1 && size > 1) || (is_dense && rows.strides[2] != size && g_.keys > 1);
  };
  is_copied_ = g_.dtype != kFloat32 || is_apart(g_.k, g_.size) || is_apart(g_.v, g_.value_size);
  if (is_copied_) copied_ = rows() * (g_.size + g_.value_size);
  if (g_.has_mask) masked_ = g_.mask_sizes[0] * g_.mask_sizes[1] * g_.keys * mask_width_;
}

void Operands::load(float* memory) const {
  if (is_copied_) copy_keys(memory);
  if (g_.has_mask) transpose_mask(memory + copied_);
}

const float* Operands::keys(const float* memory, int64_t batch, int64_t group) const {
  if (is_copied_) return memory + (batch * g_.groups + group) * g_.keys * g_.size;
  return reinterpret_cast<const float*>(g_.k.at(sizeof(float), batch, group));
}

const float* Operands::values(const float* memory, int64_t batch, int64_t group) const {
  if (is_copied_) return memory + rows() * g_.size + (batch * g_.groups + group) * g_.keys * g_.value_size;
  return reinterpret_cast<const float*>(g_.v.at(sizeof(float), batch, group));
}

const float* Operands::mask(const float* memory, int64_t batch, int64_t head) const {
  if (!g_.has_mask) return nullptr;
  const int64_t own_batch = g_.mask_sizes[0] == 1 ? 0 : batch, own_head = g_.mask_sizes[1] == 1 ? 0 : head;
  return memory + copied_ + (own_batch * g_.mask_sizes[1] + own_head) * g_.keys * mask_width_;
}

void transpose(const float* from, int64_t stride, int64_t rows, int64_t columns, float scale, float* to, int64_t to_stride) {
  using Four [[gnu::vector_size(16), gnu::aligned(4), gnu::may_alias]] = float;
  const int64_t whole_rows = rows / 4 * 4, whole_columns = columns / 4 * 4;
  for (int64_t row = 0; row < whole_rows; row += 4) {
    for (int64_t column = 0; column < whole_columns; column += 4) {
      const float* at = from + row * stride + column;
      Four part[4], half[4];
      for (int i = 0; i < 4; ++i) part[i] = *reinterpret_cast<const Four*>(at + i * stride) * scale;
      for (int i = 0; i < 2; ++i) {
        half[2 * i] = __builtin_shufflevector(part[2 * i], part[2 * i + 1], 0, 4, 1, 5);
        half[2 * i + 1] = __builtin_shufflevector(part[2 * i], part[2 * i + 1], 2, 6, 3, 7);
      }
      float* place = to + column * to_stride + row;
      for (int i = 0; i < 2; ++i) {
        *reinterpret_cast<Four*>(place + 2 * i * to_stride) = __builtin_shufflevector(half[i], half[i + 2], 0, 1, 4, 5);
        *reinterpret_cast<Four*>(place + (2 * i + 1) * to_stride) = __builtin_shufflevector(half[i], half[i + 2], 2, 3, 6, 7);
      }
    }
  }
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t column = row < whole_rows ? whole_columns : 0; column < columns; ++column) {
      to[column * to_stride + row] = scale * from[row * stride + column];
    }
  }
}

void Operands::copy_keys(float* memory) const {
  const pointwise::ReadRow read = pointwise::reader(pointwise::element_of(g_.dtype), pointwise::kFloat32);
  const int64_t item = item_bytes(g_.dtype);
  parallel_items(rows(), 64, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t key = row % g_.keys, group = row / g_.keys % g_.groups, batch = row / g_.keys / g_.groups;
      read(g_.k.at(item, batch, group, key), g_.k.strides[3], memory + row * g_.size, g_.size);
      read(g_.v.at(item, batch, group, key), g_.v.strides[3], memory + rows() * g_.size + row * g_.value_size, g_.value_size);
    }
  });
}

void Operands::transpose_mask(float* memory) const {
  constexpr int64_t tile_keys = 64, tile_queries = 16;
  const auto element = g_.mask_is_truth ? pointwise::Element::Bool : pointwise::element_of(g_.dtype);
  const pointwise::ReadRow read = pointwise::reader(element, pointwise::kFloat32);
  const int64_t item = g_.mask_is_truth ? 1 : item_bytes(g_.dtype), heads = g_.mask_sizes[1];
  const int64_t tiles = (g_.keys + tile_keys - 1) / tile_keys, count = g_.mask_sizes[0] * heads * tiles;
  parallel_items(count, 1, [&](int64_t begin, int64_t end) {
    float rows[tile_queries * tile_keys];
    for (int64_t tile = begin; tile < end; ++tile) {
      const int64_t key = tile % tiles * tile_keys, keys = std::min(tile_keys, g_.keys - key);
      const int64_t head = tile / tiles % heads, batch = tile / tiles / heads;
      float* const to = memory + ((batch * heads + head) * g_.keys + key) * mask_width_;
      for (int64_t query = 0; query < g_.queries; query += tile_queries) {
        const int64_t queries = std::min(tile_queries, g_.queries - query);
        for (int64_t row = 0; row < queries; ++row) {
          const char* from = g_.mask.at(item, batch, head, query + row) + key * g_.mask.strides[3] * item;
          float* const numbers = rows + row * tile_keys;
          read(from, g_.mask.strides[3], numbers, keys);
          for (int64_t i = 0; g_.mask_is_truth && i < keys; ++i) {
            numbers[i] = numbers[i] != 0 ? 0.0f : -std::numeric_limits<float>::infinity();
          }
        }
        transpose(rows, tile_keys, queries, keys, 1.0f, to + query, mask_width_);
      }
      for (int64_t row = 0; row < keys; ++row) std::fill(to + row * mask_width_ + g_.queries, to + (row + 1) * mask_width_, 0.0f);
    }
  });
}

}  // namespace npu::attention
