// TopK on the host. PyTorch leaves open which of equal elements it takes, and in which order. To give the same ones,
// elements go through the algorithms of the C++ library that PyTorch calls (ATen/native/TopKImpl.h of 2.13), with the same
// comparisons: of few elements of many a partial sort, else a selection, then a sort of all but the last one, which is at
// its place.
#include <algorithm>

#include "ops/index/host_index.h"
#include "ops/index/host_numbers.h"

namespace npu::indexing {
namespace {

constexpr int64_t kMany = 64;  // elements for one that is kept: a partial sort is faster

template <class T>
struct Candidate {
  decltype(key_of(T{})) key;
  int64_t place;
};

template <class Entry, class Before>
void order_first(Entry* entries, int64_t size, int64_t kept, bool is_sorted, Before before) {
  Entry *const end = entries + size, *const last = entries + kept - 1;
  if (kept * kMany <= size) return std::partial_sort(entries, entries + kept, end, before);
  std::nth_element(entries, last, end, before);
  if (is_sorted) std::sort(entries, last, before);
}

template <class T>
void take_rows(const OpCall& call, const SortLayout& layout) {
  using Entry = Candidate<T>;
  const TopKAttrs attrs = attrs_of<TopKAttrs>(call);
  const auto* x = static_cast<const T*>(call.inputs[0].data);
  auto* values = static_cast<T*>(call.outputs[0].data);
  auto* indices = static_cast<int64_t*>(call.outputs[1].data);
  auto* all = static_cast<Entry*>(call.workspace);
  parallel_rows(layout.rows(), layout.size, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const int64_t outer = r / layout.inner, inner = r % layout.inner;
      const T* const from = x + outer * layout.size * layout.inner + inner;
      Entry* const entries = all + r * layout.size;
      for (int64_t i = 0; i < layout.size; ++i) entries[i] = {key_of(from[i * layout.inner]), i};
      const auto order = [&](auto before) { order_first(entries, layout.size, layout.kept, attrs.sorted != 0, before); };
      if (attrs.largest) order([](const Entry& a, const Entry& b) { return a.key > b.key; });
      else order([](const Entry& a, const Entry& b) { return a.key < b.key; });
      for (int64_t i = 0; i < layout.kept; ++i) {
        const int64_t to = (outer * layout.kept + i) * layout.inner + inner;
        values[to] = from[entries[i].place * layout.inner];
        indices[to] = entries[i].place;
      }
    }
  });
}

Status launch_top(const OpCall& call) {
  if (call.outputs[0].numel == 0) return {};
  return with_number(call.inputs[0].dtype,
                     [&](auto x) { return take_rows<decltype(x)>(call, layout_of_sort(call)), Status(); });
}

uint64_t top_workspace(const OpCall& call) {
  return with_number(call.inputs[0].dtype, [&](auto x) {
    return uint64_t{sizeof(Candidate<decltype(x)>)} * uint64_t(call.inputs[0].numel);
  });
}

}  // namespace

std::vector<KernelPtr> top_host_kernels() {
  return {make_kernel({kTopK, "top_k.host", DeviceType::Host}, {top_supported, launch_top, nullptr, top_workspace})};
}

}  // namespace npu::indexing
