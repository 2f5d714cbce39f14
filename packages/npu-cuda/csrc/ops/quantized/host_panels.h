// What panels of W^T are made of: words of its rows, and their scales, of neighbouring columns beside one another.
#pragma once

#include "ops/quantized/quantized.h"

namespace npu::quantized {

inline constexpr int64_t kMostWidth = 64, kMostBytes = 1024;  // of a panel: its columns, and bytes of a row of W

// Some columns of W^T, in panels of `width`: beyond the last one they are 0.
struct Columns {
  const Problem& problem;
  int64_t first, count, width;

  // `bytes` of each from byte `from` on: [bytes / 4, width] words.
  void read_words(int64_t from, int64_t bytes, uint32_t* words) const;
  // Reads the scales of `groups` groups: [groups, width].
  void read_scales(int64_t first_group, int64_t groups, float* scales) const;
};

}  // namespace npu::quantized
