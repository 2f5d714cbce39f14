// Loops of matrix products on the host, compiled for each instruction set; the processor decides. Numbers are floats,
// or doubles where the elements of B are.
#pragma once

#include "ops/fused/register_steps.h"
#include "ops/gemm/gemm.h"

namespace npu::gemm {

// The numbers of some rows of A times a panel of B.
struct Block {
  const void* rows;
  int64_t row_stride;
  const void* panel;   // elements of B: the columns of the block, as many as whole vectors have
  int64_t panel_stride;
  const void* start;  // what the sums start at, also whole vectors; null: 0
  int64_t start_stride;
  void* out;
  int64_t out_stride;
  int64_t num_rows, columns, depth;
  int64_t row_step = 1;  // from a number of a row to the next one
  const void* next = nullptr;  // as many elements that are read after these, to be brought into the caches
  const fusion::RegisterSteps* steps = nullptr;  // of numbers and elements that are float32
  bool is_streamed = false;    // no other rows are multiplied by the panel: the first of few rows reads it from memory
};

// A row of A, or two, times some panels of B at the same time: memory is faster where it is read in several places.
struct Streams {
  const void* rows;
  int64_t row_stride;
  const void* panel;      // the first one, as wide as the widest tile
  int64_t panel_apart;    // elements from one panel to the next that is read
  const void* start;      // what the sums of the first one start at, for all rows; null: 0
  int64_t start_apart;
  void* out;
  int64_t out_stride, out_apart;
  int64_t num_rows, depth;
  int64_t num_panels;  // 4 or 2 for a row, 2 for two rows: as many as there are registers for their sums
};

// The numbers of some rows of A times rows of B, whose elements are neighbours.
struct Dots {
  const void* rows;
  int64_t row_stride;
  const void* matrix;
  int64_t matrix_stride;
  void* out;
  int64_t out_stride;
  int64_t num_rows, count, depth;  // count: of rows of B
};

// D = alpha * sums + beta * c, of n numbers. In place.
struct Combination {
  void* sums;
  const void* c;  // null: there is none
  float alpha, beta;
  int64_t n;
};

struct BlockLoops {
  void (*multiply)(const Block& block);
  void (*multiply_streams)(const Streams& streams);
  void (*dots)(const Dots& dots);
  void (*combine)(const Combination& combination);
  int64_t vector;  // numbers of a vector
  int64_t rows;    // of the largest tile
  int64_t width;   // columns of the widest tile: the width of panels
};

// For elements of B.
const BlockLoops& block_loops(Element element);

}  // namespace npu::gemm
