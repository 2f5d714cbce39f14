// Products of many rounded rows by quantized weights: panels of W^T are made of bytes in the first cache, and the rows of
// A times them have a sum of integers for each block, where rows times rows have one for each four integers. A row of D is
// the same in any place of any number of rows that are computed so.
#pragma once

#include "ops/quantized/host_dynamic_loops.h"
#include "ops/quantized/quantized.h"

namespace npu::quantized {

// Whether they are quicker for a call with blocks of A of so many elements.
bool has_panels(const Problem& problem, int64_t block);
uint64_t panels_workspace_bytes(const Problem& problem, int64_t block);
void multiply_panels(const Problem& problem, int64_t block, char* workspace);

// Where a row of A is rounded to. A scale is written for each block, or for each `word` integers.
struct RoundedRow {
  int64_t block, word;  // word: 0 where scales are those of blocks
  int8_t* integers;
  float* scales;
};

void round_row(const Problem& problem, int64_t row, RoundedRow to, void (*round)(const Rounding&));

inline int64_t padded(int64_t bytes) { return (bytes + 63) / 64 * 64; }
inline int64_t blocks_of_row(const Problem& problem, int64_t block) {
  return problem.group > 0 ? problem.groups * ((problem.group + block - 1) / block) : 0;
}

}  // namespace npu::quantized
