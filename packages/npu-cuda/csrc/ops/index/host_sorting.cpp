// Sort on the host: a radix sort of keys with the places of their elements, least digit first (Knuth, "The
// Art of Computer Programming", 5.2.5); of a few elements of many, a selection first.
#include <algorithm>
#include <utility>

#include "ops/index/host_index.h"
#include "ops/index/host_numbers.h"

namespace npu::indexing {
namespace {

constexpr int kDigitBits = 11;
constexpr size_t kDigits = size_t{1} << kDigitBits;
constexpr int64_t kShort = 256;  // rows that are compared instead

// A key of 32 bits, and the place.
struct Narrow {
  using Key = uint32_t;
  static constexpr int kPasses = 3;
  uint64_t bits;
  static Narrow of(Key key, int64_t place) { return {uint64_t{key} << 32 | uint64_t(place)}; }
  int64_t place() const { return static_cast<int64_t>(bits & 0xffffffffu); }
  size_t digit(int pass) const { return (bits >> (32 + pass * kDigitBits)) & (kDigits - 1); }
  bool operator<(const Narrow& other) const { return bits < other.bits; }
};

struct Wide {
  using Key = uint64_t;
  static constexpr int kPasses = 6;
  uint64_t key;
  int64_t at;
  static Wide of(Key key, int64_t place) { return {key, place}; }
  int64_t place() const { return at; }
  size_t digit(int pass) const { return (key >> (pass * kDigitBits)) & (kDigits - 1); }
  bool operator<(const Wide& other) const { return key != other.key ? key < other.key : at < other.at; }
};

template <class T>
using EntryOf = std::conditional_t<sizeof(T) == 8, Wide, Narrow>;

template <class T>
struct Row {
  using Entry = EntryOf<T>;
  const T* x;
  int64_t size, stride, kept;
  bool descending;
  Entry *entries, *others;  // `others` is read before the results of a place are written

  Entry entry(int64_t i) const {
    const auto key = key_of(x[i * stride]);
    return Entry::of(descending ? ~key : key, i);
  }
};

// Returns which of the two buffers has the result.
template <class Entry>
Entry* radix_sort(Entry* from, Entry* to, int64_t n) {
  uint32_t counts[Entry::kPasses][kDigits] = {};
  for (int64_t i = 0; i < n; ++i) {
    for (int pass = 0; pass < Entry::kPasses; ++pass) ++counts[pass][from[i].digit(pass)];
  }
  for (int pass = 0; pass < Entry::kPasses; ++pass) {
    uint32_t* starts = counts[pass];
    if (starts[from[0].digit(pass)] == n) continue;
    uint32_t total = 0;
    for (size_t digit = 0; digit < kDigits; ++digit) total += std::exchange(starts[digit], total);
    for (int64_t i = 0; i < n; ++i) to[starts[from[i].digit(pass)]++] = from[i];
    std::swap(from, to);
  }
  return from;
}

template <class T>
auto* sort_all(const Row<T>& row) {
  for (int64_t i = 0; i < row.size; ++i) row.entries[i] = row.entry(i);
  if (row.size >= kShort) return radix_sort(row.entries, row.others, row.size);
  std::sort(row.entries, row.entries + row.size);
  return row.entries;
}

// Keeps the entries that may be among the first, and sorts out now and then.
template <class T>
auto* sort_first(const Row<T>& row) {
  auto* first = row.entries;
  const int64_t limit = std::min(row.size, 2 * row.kept + kShort);
  int64_t count = 0;
  for (; count < limit; ++count) first[count] = row.entry(count);
  const auto select = [&] { std::nth_element(first, first + row.kept - 1, first + count); };
  select();
  auto last = first[row.kept - 1];
  for (int64_t i = limit; i < row.size; ++i) {
    const auto entry = row.entry(i);
    if (!(entry < last)) continue;
    if (count == limit) count = row.kept;
    first[count++] = entry;
    if (count < limit) continue;
    select();
    last = first[row.kept - 1];
  }
  select();
  std::sort(first, first + row.kept);
  return first;
}

// The indices of whole contiguous rows have the size of narrow entries, and are the second buffer.
template <class Entry>
bool sorts_in_indices(const SortLayout& layout) {
  return sizeof(Entry) == sizeof(int64_t) && layout.inner == 1 && layout.kept == layout.size;
}

template <class T>
void sort_rows(const OpCall& call, const SortLayout& layout) {
  using Entry = EntryOf<T>;
  const bool descending = attrs_of<SortAttrs>(call).descending;
  const auto* x = static_cast<const T*>(call.inputs[0].data);
  auto* values = static_cast<T*>(call.outputs[0].data);
  auto* indices = static_cast<int64_t*>(call.outputs[1].data);
  auto* entries = static_cast<Entry*>(call.workspace);
  Entry* others =
      sorts_in_indices<Entry>(layout) ? reinterpret_cast<Entry*>(indices) : entries + call.inputs[0].numel;
  parallel_rows(layout.rows(), layout.size, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const int64_t outer = r / layout.inner, inner = r % layout.inner;
      const T* from = x + outer * layout.size * layout.inner + inner;
      const Row<T> row{from,
                       layout.size,
                       layout.inner,
                       layout.kept,
                       descending,
                       entries + r * layout.size,
                       others + r * layout.size};
      const Entry* sorted = layout.kept * 4 < layout.size ? sort_first(row) : sort_all(row);
      for (int64_t i = 0; i < layout.kept; ++i) {
        const int64_t place = sorted[i].place(), to = (outer * layout.kept + i) * layout.inner + inner;
        values[to] = from[place * layout.inner];
        indices[to] = place;
      }
    }
  });
}

Status launch_sort(const OpCall& call) {
  if (call.outputs[0].numel == 0) return {};
  return with_number(call.inputs[0].dtype,
                     [&](auto x) { return sort_rows<decltype(x)>(call, layout_of_sort(call)), Status(); });
}

uint64_t sort_workspace(const OpCall& call) {
  return with_number(call.inputs[0].dtype, [&](auto x) {
    using Entry = EntryOf<decltype(x)>;
    const uint64_t buffers = sorts_in_indices<Entry>(layout_of_sort(call)) ? 1 : 2;
    return buffers * sizeof(Entry) * uint64_t(call.inputs[0].numel);
  });
}

}  // namespace

std::vector<KernelPtr> sorting_host_kernels() {
  return {make_kernel({kSort, "sort.any.host", DeviceType::Host},
                      {sort_supported, launch_sort, nullptr, sort_workspace})};
}

}  // namespace npu::indexing
