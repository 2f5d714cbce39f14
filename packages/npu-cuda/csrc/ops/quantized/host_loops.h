// Loops over quantized weights on the host, compiled for each instruction set; the processor decides.
#pragma once

#include <cstdint>

namespace npu::quantized {

inline constexpr int64_t kMostVectors = 4;  // of a Dots

// Vectors of numbers times rows of integers, which are read once, in order: out[j][i] = x_j . row_i.
struct Dots {
  // Of packed integers: for each byte, 16 * odd + even, what it is multiplied by, x_odd / 16, and from `half` on what
  // `even` is, x_even - x_odd / 16.
  const float* x;
  int64_t x_stride, half;
  const uint8_t* integers;
  int64_t row_bytes;
  const float* scales;  // [rows, groups]
  int64_t groups, group_bytes;
  float* out;
  int64_t out_stride;
  int64_t vectors, rows;
};

// A panel of numbers [depth, width] from rows of integers.
struct Panel {
  const uint32_t* words;  // [depth / integers of a word, width]: a column of them has the integers of a row
  const float* scales;    // [groups, width]
  int64_t group, first;   // the integers of a group, and how many of the first group are before the panel
  float* numbers;
  int64_t depth, width;
};

struct Loops {
  void (*dots)(const Dots& dots);
  void (*unpack)(const Panel& panel);
};

const Loops& loops(bool is_packed);

}  // namespace npu::quantized
