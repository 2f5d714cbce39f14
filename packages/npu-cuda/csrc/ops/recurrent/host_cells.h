// The gates of a step, after the product: new states of some rows and of the outputs of one panel. Compiled for each
// instruction set.
#pragma once

#include "ops/recurrent/recurrent.h"

namespace npu::recurrent {

// Rows of `units` numbers, a multiple of a vector's.
struct CellRows {
  const float* sums;  // h W_h^T + bias: the gates one after the other, `units` apart
  int64_t sums_row;
  const float* x;  // the gates of the input
  int64_t x_row, x_gate;
  const float* h;  // before the step
  float* next;     // and after it
  float* c;        // in place; null where there is no second state
  int64_t state_row;
  int64_t rows, units;
};

using CellLoop = void (*)(const CellRows& rows);
CellLoop cell_loop(Cell cell);

}  // namespace npu::recurrent
