// One call of a pointwise op on the host: the nest is walked in blocks that stay in the first cache; operands
// that are not contiguous numbers of the class are read into it, and results are written from it.
#pragma once

#include "ops/pointwise/host_rows.h"
#include "ops/pointwise/nest.h"

namespace npu::pointwise {

// Computes n elements of contiguous rows of numbers. A row of results may be a row of inputs.
using ComputeRow = void (*)(const void* const* in, void* const* out, int64_t n, const void* attrs);

Status run_on_host(const OpCall& call, Class type, ComputeRow compute, const void* attrs);

}  // namespace npu::pointwise
