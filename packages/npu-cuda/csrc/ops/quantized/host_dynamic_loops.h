// Loops of DynamicQuantizedGemm on the host, compiled for each instruction set: they round rows of A to integers, bring
// these into the order in which the integers of W are read, and multiply both. Sums of integers are exact, so that they
// are the same with all instruction sets; what is added up in float32 is not.
#pragma once

#include <cstdint>

namespace npu::quantized {

// How a row of W is read: unit by unit, each in steps of a vector of bytes. The last step of a unit overlaps the one
// before it where a unit is not made up of vectors.
struct Layout {
  int64_t vector;            // bytes of a vector; 0: its vectors do not fit, integers are read one by one
  int64_t groups_of_vector;  // 1, or how many groups are in a vector: 2 or 4
  int64_t units, unit;       // their number and their bytes: groups, or whole rows where a vector has several groups

  int64_t steps() const { return vector == 0 ? 0 : units * ((unit + vector - 1) / vector); }
};

// A group of a row of A, or part of one, that begins with a block.
struct Rounding {
  const float* numbers;
  int64_t count, block;
  int8_t* integers;
  // Scales of blocks; each for so many integers (words), or once if that is 0.
  float* scales;
  int64_t word;
};

// A row of rounded numbers in the order of a Layout: for each step the integers that a vector of W is multiplied by, and
// their scales; for packed W the even ones, the odd ones, what their sums begin at, and their scales.
struct Arrangement {
  const int8_t* integers;
  const float* scales;  // of words: four bytes of W
  Layout layout;
  char* to;
};

// Rows of A times rows of W: out[j][i] = x_j . row_i.
struct DynamicDots {
  const char* x;  // arranged, or integers, and their scales after `scales_at` bytes
  int64_t x_stride, scales_at;
  const uint8_t* integers;
  int64_t row_bytes;
  const float* scales;  // [rows, groups]
  int64_t groups, group, block;  // elements of a group and of a block
  Layout layout;
  float* out;
  int64_t out_stride;
  int64_t vectors, rows;

  // Without the first rows of A.
  DynamicDots from(int64_t vector) const {
    DynamicDots others = *this;
    others.x += vector * x_stride;
    others.out += vector * out_stride;
    return others;
  }
};

struct DynamicLoops {
  int64_t vector;  // bytes; 0: for any sizes
  void (*round)(const Rounding& rounding);
  void (*arrange)(const Arrangement& arrangement);
  void (*dots)(const DynamicDots& dots);
};

// Rows of A times a panel of W^T, in which words of four integers of its columns are beside one another:
// out[j][i] += x_j . column_i. Packed integers are in the order of PanelLoops::order.
struct PanelDots {
  const char* x;           // integers
  const char* x_scales;    // float, of blocks
  const char* starts;      // int32_t, of sums of blocks: what the offset of W adds, taken off
  int64_t x_stride;        // bytes from one row to the next, of all three
  const char* panel;
  const float* scales;  // [groups, width]
  int64_t groups, group, block;
  float* out;  // [rows, width]
  int64_t rows;
};

struct PanelLoops {
  int64_t width;       // columns of a panel
  int64_t least_rows;  // of A: with fewer, it takes less time to read W as it is
  // Brings integers of a group of A into order: of packed ones, the even integers of eight, and the odd ones. Writes what
  // sums of its blocks start at.
  void (*order)(int8_t* integers, int64_t count, int64_t block, int32_t* starts);
  // Makes words of W, a multiple of the width, words of a panel.
  void (*fill)(const uint32_t* words, int64_t count, char* panel);
  void (*dots)(const PanelDots& dots);
};

const PanelLoops& panel_loops(bool is_packed);

// The quickest loops first, those for any sizes last.
struct DynamicChoices {
  DynamicLoops loops[4];
  int count;
};

const DynamicChoices& dynamic_choices(bool is_packed);
// Bytes of a step of a row of A.
constexpr int64_t step_bytes(bool is_packed, int64_t vector) { return (is_packed ? 4 : 2) * vector; }

}  // namespace npu::quantized
