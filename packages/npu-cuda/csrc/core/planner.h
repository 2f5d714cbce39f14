// Buffer assignment of temporaries in one arena, and dependencies between ops. Both work on plain intervals: bytes and
// positions in a program.
#pragma once

#include <cstdint>
#include <vector>

namespace npu {

inline constexpr uint64_t kArenaAlignment = 256;

// A block that is needed from the op `first` to the op `last`, both included.
struct Interval {
  uint64_t bytes;
  int first;
  int last;
};

struct ArenaPlan {
  uint64_t bytes = 0;              // of the arena
  std::vector<uint64_t> offsets;   // of each block, multiples of kArenaAlignment
};

// Places blocks such that those which are needed at the same time do not overlap: large ones first, each in the
// smallest gap that holds it.
ArenaPlan plan_arena(const std::vector<Interval>& blocks);

// Bytes [begin, end) of one address space.
struct ByteRange {
  uint64_t begin;
  uint64_t end;
  bool overlaps(const ByteRange& other) const { return begin < other.end && other.begin < end; }
};

struct Accesses {
  std::vector<ByteRange> reads;
  std::vector<ByteRange> writes;
};

// For each op the ops before it that it must wait for: it reads what they write, writes what they read, or writes what
// they write. Only direct ones: what follows from others is left out.
std::vector<std::vector<int>> hazards(const std::vector<Accesses>& ops);

}  // namespace npu
