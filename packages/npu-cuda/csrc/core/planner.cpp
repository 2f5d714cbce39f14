// Buffer assignment of temporaries in one arena, and dependencies between ops.
#include "core/planner.h"

#include <algorithm>
#include <map>
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

// Who touched the bytes from a key of the map up to `end`: the last writer (-1: none), and the readers since.
struct Segment {
  uint64_t end;
  int writer = -1;
  std::vector<int> readers;
};

class Memory {
 public:
  void read(int op, const ByteRange& range, std::vector<int>* after) {
    for_segments(range, [&](Segment& segment) {
      add(op, segment.writer, after);
      if (segment.readers.empty() || segment.readers.back() != op) segment.readers.push_back(op);
    });
  }

  void write(int op, const ByteRange& range, std::vector<int>* after) {
    if (range.begin >= range.end) return;
    const auto first = for_segments(range, [&](Segment& segment) {
      for (const int reader : segment.readers) add(op, reader, after);
      add(op, segment.writer, after);
    });
    segments_.erase(std::next(first), segments_.lower_bound(range.end));
    first->second = Segment{range.end, op, {}};
  }

 private:
  using Iterator = std::map<uint64_t, Segment>::iterator;

  static void add(int op, int before, std::vector<int>* after) {
    if (before >= 0 && before != op) after->push_back(before);
  }

  // Cuts a segment in two where it goes over `at`.
  void split(uint64_t at) {
    auto next = segments_.lower_bound(at);
    if (next == segments_.begin()) return;
    const auto segment = std::prev(next);
    if (segment->second.end <= at) return;
    segments_.emplace_hint(next, at, segment->second);
    segment->second.end = at;
  }

  // Calls `touch` for segments that cover exactly the range, and returns the first of them.
  template <class Touch>
  Iterator for_segments(const ByteRange& range, Touch touch) {
    if (range.begin >= range.end) return segments_.end();
    split(range.begin);
    split(range.end);
    uint64_t at = range.begin;
    Iterator next = segments_.lower_bound(at);
    while (at < range.end) {
      if (next == segments_.end() || next->first > at) {
        const uint64_t end = next == segments_.end() ? range.end : std::min(range.end, next->first);
        next = segments_.emplace_hint(next, at, Segment{end, -1, {}});
      }
      touch(next->second);
      at = next->second.end;
      ++next;
    }
    return segments_.find(range.begin);
  }

  std::map<uint64_t, Segment> segments_;  // by their first byte; they do not overlap
};

// Leaves out of `after`, which is sorted and holds each op once, what the others imply.
class Reduction {
 public:
  explicit Reduction(const std::vector<std::vector<int>>& direct) : direct_(direct), seen_(direct.size(), -1) {}

  std::vector<int> operator()(int op, const std::vector<int>& after) {
    std::vector<int> kept;
    for (auto candidate = after.rbegin(); candidate != after.rend(); ++candidate) {
      if (seen_[*candidate] == op) continue;
      kept.push_back(*candidate);
      if (candidate + 1 != after.rend()) mark_ancestors(op, *candidate, after.front());
    }
    std::reverse(kept.begin(), kept.end());
    return kept;
  }

 private:
  // Marks what `from` waits for, down to the op `oldest`.
  void mark_ancestors(int op, int from, int oldest) {
    stack_.assign(1, from);
    while (!stack_.empty()) {
      const int current = stack_.back();
      stack_.pop_back();
      for (const int before : direct_[current]) {
        if (before < oldest || seen_[before] == op) continue;
        seen_[before] = op;
        stack_.push_back(before);
      }
    }
  }

  const std::vector<std::vector<int>>& direct_;
  std::vector<int> seen_;  // per op: the last op that found it among its ancestors
  std::vector<int> stack_;
};

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

std::vector<std::vector<int>> hazards(const std::vector<Accesses>& ops) {
  std::vector<std::vector<int>> direct(ops.size());
  Memory memory;
  Reduction reduce(direct);
  for (int op = 0; op < static_cast<int>(ops.size()); ++op) {
    std::vector<int> after;
    for (const ByteRange& range : ops[op].reads) memory.read(op, range, &after);
    for (const ByteRange& range : ops[op].writes) memory.write(op, range, &after);
    std::sort(after.begin(), after.end());
    after.erase(std::unique(after.begin(), after.end()), after.end());
    direct[op] = reduce(op, after);
  }
  return direct;
}

}  // namespace npu
