#include "core/planner.h"

#include <algorithm>
#include <numeric>

namespace npu {
namespace {

struct Placed {
  uint64_t begin;
  uint64_t end;
  int first;
  int last;
};

uint64_t aligned(uint64_t bytes) { return (bytes + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment; }

// Where the block fits: in the smallest gap between blocks that live when it does, else behind all of them. `placed`
// is sorted by where blocks begin.
uint64_t find_gap(const std::vector<Placed>& placed, const Interval& block, uint64_t bytes) {
  uint64_t free_from = 0;
  uint64_t best = 0;
  uint64_t best_gap = UINT64_MAX;
  for (const Placed& other : placed) {
    if (other.last < block.first || block.last < other.first) continue;
    if (other.begin > free_from) {
      const uint64_t gap = other.begin - free_from;
      if (gap >= bytes && gap < best_gap) {
        best = free_from;
        best_gap = gap;
      }
    }
    free_from = std::max(free_from, other.end);
  }
  return best_gap == UINT64_MAX ? free_from : best;
}

}  // namespace

ArenaPlan plan_arena(const std::vector<Interval>& blocks) {
  std::vector<size_t> order(blocks.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto is_larger = [&](size_t a, size_t b) { return blocks[a].bytes > blocks[b].bytes; };
  std::stable_sort(order.begin(), order.end(), is_larger);

  ArenaPlan plan;
  plan.offsets.assign(blocks.size(), 0);
  std::vector<Placed> placed;
  for (const size_t index : order) {
    const Interval& block = blocks[index];
    if (block.bytes == 0) break;  // they are last, and need no place
    const uint64_t bytes = aligned(block.bytes);
    const uint64_t begin = find_gap(placed, block, bytes);
    const Placed next{begin, begin + bytes, block.first, block.last};
    const auto by_begin = [](const Placed& a, const Placed& b) { return a.begin < b.begin; };
    placed.insert(std::upper_bound(placed.begin(), placed.end(), next, by_begin), next);
    plan.offsets[index] = begin;
    plan.bytes = std::max(plan.bytes, next.end);
  }
  return plan;
}

}  // namespace npu
