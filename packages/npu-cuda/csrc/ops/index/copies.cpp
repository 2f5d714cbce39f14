// Cat and SliceScatter: copies to parts of the output, on every device.
#include <algorithm>

#include "ops/copy/copy.h"
#include "ops/host_copy.h"
#include "ops/host_simd.h"
#include "ops/index/host_index.h"

namespace npu::indexing {
namespace {

Status copy_to([[maybe_unused]] const OpCall& call, const TensorDesc& x, const TensorDesc& y) {
#ifdef NPU_WITH_CUDA
  if (y.device_type == NPU_CUDA) return copy_on_cuda(x, y, call.stream);
#endif
  return copy_on_host(x, y);
}

// Contiguous inputs on the host, of which y has a row each in turn.
struct CatRows {
  [[gnu::always_inline]] static inline void run(const OpCall* call, int64_t rows, int64_t begin, int64_t end) {
    const char* from[kMaxInputs];
    int64_t bytes[kMaxInputs];
    char* to = static_cast<char*>(call->outputs[0].data) + nbytes(call->outputs[0]) / rows * begin;
    for (int i = 0; i < call->num_inputs; ++i) {
      bytes[i] = nbytes(call->inputs[i]) / rows;
      from[i] = static_cast<const char*>(call->inputs[i].data) + bytes[i] * begin;
    }
    for (int64_t row = begin; row < end; ++row) {
      for (int i = 0; i < call->num_inputs; to += bytes[i], from[i] += bytes[i], ++i) copy_row(from[i], to, bytes[i]);
    }
  }
};

bool are_contiguous(const OpCall& call) {
  return is_contiguous(call.outputs[0]) && std::all_of(call.inputs, call.inputs + call.num_inputs, is_contiguous);
}

Status launch_cat(const OpCall& call) {
  const TensorDesc& y = call.outputs[0];
  if (y.numel == 0) return {};
  const int64_t axis = positive_axis(attrs_of<AxisAttrs>(call).axis, y.rank);
  if (y.device_type == NPU_CPU && are_contiguous(call)) {
    const int64_t rows = product(y.shape, 0, axis);
    parallel_rows(rows, y.numel / rows,
                  [&](int64_t begin, int64_t end) { run_simd<CatRows>(&call, rows, begin, end); });
    return {};
  }
  int64_t start = 0;
  for (int i = 0; i < call.num_inputs; ++i) {
    const TensorDesc& x = call.inputs[i];
    const TensorDesc part = x.rank + 1 == y.rank ? unsqueezed(x, axis) : x;
    const int64_t size = part.shape[axis];
    NPU_TRY(copy_to(call, part, slice_of(y, axis, start, 1, size)));
    start += size;
  }
  return {};
}

Status launch_slice_scatter(const OpCall& call) {
  const TensorDesc &x = call.inputs[0], &source = call.inputs[1], &y = call.outputs[0];
  const SliceAttrs attrs = attrs_of<SliceAttrs>(call);
  const int64_t axis = positive_axis(attrs.axis, y.rank);
  if (x.data != y.data) NPU_TRY(copy_to(call, x, y));
  const TensorDesc part = source.rank + 1 == y.rank ? unsqueezed(source, axis) : source;
  return copy_to(call, part, slice_of(y, axis, attrs.start, attrs.step, part.shape[axis]));
}

Status load([[maybe_unused]] const OpCall& call, void** state) {
  *state = nullptr;
#ifdef NPU_WITH_CUDA
  if (call.outputs[0].device_type == NPU_CUDA) return load_copies(call, state);
#endif
  return {};
}

}  // namespace

std::vector<KernelPtr> copying_kernels(DeviceType device) {
  const std::string suffix = device == DeviceType::Host ? ".any.host" : ".any.cuda";
  return {make_kernel({kCat, "cat" + suffix, device}, {cat_supported, launch_cat, nullptr, nullptr, load}),
          make_kernel({kSliceScatter, "slice_scatter" + suffix, device},
                      {slice_scatter_supported, launch_slice_scatter, nullptr, nullptr, load})};
}

}  // namespace npu::indexing
