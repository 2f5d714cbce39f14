#include "core/topology.h"

#include <algorithm>

namespace npu {
namespace {

// Of an A100, the smallest GPU that this is for: 108 multiprocessors of 2048 threads; memory; f32 without
// tensor cores.
constexpr double kItemsThatFill = 108 * 2048;
constexpr double kBytesPerSecond = 1.5e12;
constexpr double kFlopsPerSecond = 1.95e13;
constexpr double kLongSeconds = 1e-5;  // about ten nodes of a graph that compute nothing

bool gains_by_company(const OpSize& size) {
  const double share = double(size.items) / kItemsThatFill;  // of the GPU
  if (size.items == 0 || share >= 1) return false;
  const double seconds = std::max(size.cost.bytes / kBytesPerSecond, size.cost.flops / kFlopsPerSecond);
  return seconds / share > kLongSeconds;
}

}  // namespace

// A product works on its outputs; what reads or writes more than it computes, on its largest tensor.
OpSize size_of(const OpCall& call, Cost cost) {
  int64_t items = 0;
  for (int i = 0; i < call.num_outputs; ++i) items = std::max(items, call.outputs[i].numel);
  if (cost.flops > cost.bytes) return {cost, items};
  for (int i = 0; i < call.num_inputs; ++i) items = std::max(items, call.inputs[i].numel);
  return {cost, items};
}

// The ops that gain are in a row, and need no edges, where each follows from the one before. `last` of an op
// is the last of them, by its number, that it waits for or is.
bool gains_by_dag(const std::vector<std::vector<int>>& after, const std::vector<OpSize>& sizes) {
  std::vector<int> last(after.size(), -1);
  int count = 0;
  for (size_t op = 0; op < after.size(); ++op) {
    for (const int before : after[op]) last[op] = std::max(last[op], last[size_t(before)]);
    if (!gains_by_company(sizes[op])) continue;
    if (last[op] != count - 1) return true;
    last[op] = count++;
  }
  return false;
}

}  // namespace npu
