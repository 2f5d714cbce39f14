// List forms on the host: threads share the elements of all tensors.
#include <algorithm>
#include <numeric>

#include "ops/lists/lists.h"
#include "ops/pointwise/host_ops.h"
#include "ops/threads.h"

namespace npu::lists {
namespace {

constexpr int64_t kLeastOfAThread = 32768;  // elements

Status launch(const pointwise::HostOp& op, const OpCall& call, const Elements& elements) {
  std::vector<int64_t> ends;  // of the elements of each tensor, counted over all
  for (int i = 0; i < elements.length(); ++i) ends.push_back((i ? ends.back() : 0) + elements.numel(i));
  parallel_for(ends.back(), kLeastOfAThread, [&](int64_t begin, int64_t end) {
    TensorDesc tensors[pointwise::kMaxOperands];
    alignas(16) char attrs[pointwise::kMostAttrBytes];
    op.load_attrs(call, attrs);
    const auto first = std::upper_bound(ends.begin(), ends.end(), begin) - ends.begin();
    for (int i = int(first); begin < end; ++i) {
      const int64_t start = ends[size_t(i)] - elements.numel(i), stop = std::min(end, ends[size_t(i)]);
      elements.read_numbers(i, attrs);
      if (begin < stop) pointwise::run_on_host(elements.at(i, tensors), op.type, op.compute, attrs, begin - start, stop - start);
      begin = stop;
    }
  });
  return {};
}

}  // namespace

std::vector<KernelPtr> host_kernels() {
  std::vector<ListOp> ops;
  for (const pointwise::HostOp& op : pointwise::host_ops()) {
    ops.push_back({op.row, op.type, op.functions.supported, op.functions.cost,
                   [&op](const OpCall& call, const Elements& elements) { return launch(op, call, elements); }});
  }
  return kernels_of(ops, DeviceType::Host);
}

}  // namespace npu::lists
