#include <algorithm>
#include <map>

#include "core/planner.h"

namespace npu {
namespace {

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
