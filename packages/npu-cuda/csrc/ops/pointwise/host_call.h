// Calls on the host: the nest is walked in blocks that stay in the first cache. Operands that are not
// contiguous numbers are read into rows of a block, steps compute rows from rows, and results are written. A
// pointwise op is one step; a fused one has several.
#pragma once

#include <span>

#include "ops/pointwise/host_rows.h"
#include "ops/pointwise/nest.h"
#include "ops/pointwise/philox.h"

namespace npu::pointwise {

// Computes n elements of contiguous rows of numbers. A row of results may be a row of inputs.
using ComputeRow = void (*)(const void* const* in, void* const* out, int64_t n, const void* attrs);

inline constexpr int64_t kBlock = 1024;  // elements of a row between steps
inline constexpr int kMaxRows = 32;      // of a block: the operands of the call, then rows between steps

struct HostStep {
  ComputeRow compute;
  const void* attrs;
  int num_inputs = 0, num_outputs = 0;
  uint8_t rows[kMaxOperands] = {};  // inputs, then outputs
};

// The tensor in a row that has its number.
struct HostOperand {
  int64_t bytes;         // of an element
  int64_t number_bytes;  // of an element in the row
  ReadRow read;
  WriteRow write;
  bool is_constant;  // its number fills the row from the start
  bool is_direct;    // rows of it are rows of numbers
  bool is_whole;     // and so is the whole tensor
  bool repeats;      // every row has the same elements
};

// A step whose operands are those of the call.
struct OneStep {
  OneStep(const OpCall& call, Class type, ComputeRow compute, const void* attrs)
      : step{compute, attrs, call.num_inputs, call.num_outputs} {
    for (int i = 0; i < kMaxOperands; ++i) {
      step.rows[i] = static_cast<uint8_t>(i);
      types[i] = type;
    }
  }
  HostStep step;
  Class types[kMaxOperands];
};

// The random numbers of n places, `stride` apart, in a class of real numbers.
void read_random(const RandomKey& key, int64_t place, int64_t stride, Class type, void* numbers, int64_t n);

// A call but for the addresses of its tensors.
struct HostCall {
  Nest nest;
  int inputs;
  std::span<const HostStep> steps;
  HostOperand operands[kMaxOperands];
  bool needs_blocks;
  bool joins_rows;  // a block has several rows, else at most one
  bool has_rows = false;  // the elements of every operand along a row are numbers in order, or one number
  const RandomKey* random = nullptr;  // of operand 0, which has no memory: its offsets are places of random numbers
};

// `types`: what each operand of the call is computed in.
HostCall host_call_of(const OpCall& call, const Class* types, std::span<const HostStep> steps);

// Returns the call with loops that are given.
HostCall host_call_of(const Nest& nest, const OpCall& call, const Class* types, std::span<const HostStep> steps);

void run_on_host(const HostCall& host_call, const OpCall& call);
// Runs a call whose nest has two axes, columns and rows, with this shape in their place, on the thread that calls.
// `data`: where each operand starts.
void run_window(const HostCall& host_call, void* const* data, int64_t rows, int64_t columns);

// Runs one step, whose operands are those of the call; without `compute` its result is its input.
Status run_on_host(const OpCall& call, Class type, ComputeRow compute, const void* attrs);
// Runs the step on the elements from `begin` to `end`, on this thread.
void run_on_host(const OpCall& call, Class type, ComputeRow compute, const void* attrs, int64_t begin, int64_t end);

}  // namespace npu::pointwise
