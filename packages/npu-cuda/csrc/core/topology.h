// Topology: whether the launches of a program are captured in their order, or with the edges of their hazards
// only.
#pragma once

#include <vector>

#include "core/call.h"

namespace npu {

enum class Topology { Auto, Chain, Dag };

// What the time of an op on a GPU is estimated from.
struct OpSize {
  Cost cost;
  int64_t items;  // that it works on at the same time
};

OpSize size_of(const OpCall& call, Cost cost);

// Whether there are two ops, of which neither waits for the other, that each take much longer than a launch
// and leave a part of the GPU idle. Nothing else gains by edges, which make every launch of the graph longer
// than that of a chain.
bool gains_by_dag(const std::vector<std::vector<int>>& after, const std::vector<OpSize>& sizes);

}  // namespace npu
