// One call of a reduction on the host. Elements are read in blocks that stay in the first cache; the states
// of blocks are joined pairwise, in an order that depends on shapes alone: a result is the same for any
// number of threads, and its error grows as the logarithm of the number of elements.
#pragma once

#include "ops/pointwise/host_rows.h"
#include "ops/reduce/geometry.h"

namespace npu::reduce {

// The loops of a reduction over numbers, compiled for vectors.
template <class Lane>
struct Pass {
  // The states of `count` rows of n numbers, each `stride` after the last. `m` is a number for each state.
  void (*rows)(const Lane* x, int64_t stride, int64_t count, int64_t n, const Lane* m, const void* attrs,
               Lane* states);
  // Takes such rows into n states.
  void (*columns)(const Lane* x, int64_t stride, int64_t count, int64_t n, const Lane* m, const void* attrs,
                  Lane* states);
  void (*merge)(Lane* a, const Lane* b, int64_t n);
  void (*finish)(Lane* a, const Lane* m, int64_t n, double count, const void* attrs);
  Lane start;
};

template <class Lane>
struct HostOp {
  Pass<Lane> first, second;
  bool is_twice;  // else `first` is not used
};

// `given`: what the first pass would give, a number for each result, in the layout of the output; null: it is run.
template <class Lane>
void run_on_host(const OpCall& call, const Geometry& geometry, const HostOp<Lane>& op, const void* attrs,
                 const Lane* given = nullptr);

}  // namespace npu::reduce
