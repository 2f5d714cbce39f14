// A stable sort of rows of keys with their places, in global memory: tiles are sorted in shared memory by
// Batcher's bitonic network, then pairs of runs are merged, each entry finding its place by a search in the
// other run. Entries are unique by their places, so the result does not depend on the order of threads.
#pragma once

#include <utility>

#include "ops/elementwise_grid.h"
#include "ops/fast_division.h"

namespace npu::indexing {

struct Entry {
  uint64_t key;
  uint64_t place;
};

inline constexpr int kTile = 1024;

__device__ inline bool is_before(const Entry& a, const Entry& b) {
  return a.key != b.key ? a.key < b.key : a.place < b.place;
}

// `load(row, i)` returns the key of an element.
template <class Load>
__global__ void __launch_bounds__(kThreads)
    sort_tiles(Load load, Entry* entries, int64_t length, uint32_t tiles) {
  __shared__ Entry tile[kTile];
  const int64_t row = blockIdx.x / tiles, start = int64_t{blockIdx.x % tiles} * kTile;
  const int thread = static_cast<int>(threadIdx.x);
  for (int i = thread; i < kTile; i += kThreads) {
    const bool is_real = start + i < length;
    tile[i] = is_real ? Entry{load(row, start + i), static_cast<uint64_t>(start + i)}
                      : Entry{~uint64_t{0}, ~uint64_t{0}};
  }
  __syncthreads();
  for (int width = 2; width <= kTile; width *= 2) {
    for (int step = width / 2; step > 0; step /= 2) {
      for (int pair = thread; pair < kTile / 2; pair += kThreads) {
        const int low = pair / step * step * 2 + pair % step, high = low + step;
        const bool is_rising = (low & width) == 0;
        if (is_before(tile[high], tile[low]) == is_rising) {
          const Entry other = tile[low];
          tile[low] = tile[high];
          tile[high] = other;
        }
      }
      __syncthreads();
    }
  }
  for (int i = thread; i < kTile && start + i < length; i += kThreads)
    entries[row * length + start + i] = tile[i];
}

// Runs of `width` entries become runs of twice as many.
static __global__ void __launch_bounds__(kThreads)
    merge_runs(const Entry* from, Entry* to, int64_t length, int64_t width, int64_t n) {
  const int64_t at = first_item();
  if (at >= n) return;
  const int64_t start = at / length * length, i = at - start;
  const int64_t pair = i / (2 * width) * 2 * width, middle = pair + width < length ? pair + width : length;
  const int64_t end = middle + width < length ? middle + width : length;
  const bool is_left = i < middle;
  const Entry entry = from[at];
  int64_t low = is_left ? middle : pair, high = is_left ? end : middle;
  const int64_t first = low;
  while (low < high) {
    const int64_t half = (low + high) / 2;
    if (is_before(from[start + half], entry)) low = half + 1;
    else high = half;
  }
  to[start + (is_left ? i : i - middle + pair) + low - first] = entry;
}

inline uint64_t sorted_bytes(int64_t entries) { return 2 * sizeof(Entry) * static_cast<uint64_t>(entries); }

// Sorts rows of `length` entries in a workspace of sorted_bytes; `sorted` is where they are then.
template <class Load>
Status sort_entries(const Load& load, int64_t rows, int64_t length, const OpCall& call,
                    const Entry** sorted) {
  const int64_t n = rows * length, tiles = (length + kTile - 1) / kTile;
  auto* from = static_cast<Entry*>(call.workspace);
  Entry* to = from + n;
  const LaunchShape shape{blocks_for(rows * tiles, 1), dim3(kThreads)};
  NPU_TRY(launch(sort_tiles<Load>, shape, call.stream, load, from, length, static_cast<uint32_t>(tiles)));
  for (int64_t width = kTile; width < length; width *= 2) {
    NPU_TRY(launch(merge_runs, item_shape(n), call.stream, from, to, length, width, n));
    std::swap(from, to);
  }
  *sorted = from;
  return {};
}

}  // namespace npu::indexing
