#include "ops/rows/host_call.h"

#include <cstring>

#include "ops/threads.h"

namespace npu::rows {
namespace {

// Adds the sums of the chunks in their order, and writes them.
template <class Lane>
void write_sums(const OpCall& call, const HostRows& rows, Class type) {
  const int64_t width = rows.width();
  auto* first = static_cast<Lane*>(call.workspace);
  for (int64_t chunk = 1; chunk < rows.chunks(); ++chunk) {
    const Lane* sums = first + chunk * 2 * width;
    for (int64_t i = 0; i < 2 * width; ++i) first[i] += sums[i];
  }
  for (int i = 1; i < call.num_outputs; ++i) {
    const TensorDesc& to = call.outputs[i];
    if (to.numel > 0)
      pointwise::writer(pointwise::element_of(to.dtype), type)(first + (i - 1) * width, to.data, 1, width);
  }
}

}  // namespace

void run_on_host(const OpCall& call, const HostRows& rows, Class type, RunChunk run) {
  const RowMemory memory(rows, call);
  parallel_items(rows.chunks(), 1, [&](int64_t begin, int64_t end) {
    for (int64_t chunk = begin; chunk < end; ++chunk) run(&rows, &memory, chunk);
  });
  if (!rows.has_sums) return;
  type == pointwise::kFloat32 ? write_sums<float>(call, rows, type) : write_sums<double>(call, rows, type);
}

void clear_sums(const OpCall& call) {
  for (int i = 1; i < call.num_outputs; ++i) {
    if (call.outputs[i].numel > 0) std::memset(call.outputs[i].data, 0, size_t(nbytes(call.outputs[i])));
  }
}

}  // namespace npu::rows
