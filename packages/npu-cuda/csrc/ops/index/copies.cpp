// Cat and SliceScatter: copies to parts of the output, on every device.
#include "ops/copy/copy.h"
#include "ops/index/layouts.h"

namespace npu::indexing {
namespace {

Status copy_to([[maybe_unused]] const OpCall& call, const TensorDesc& x, const TensorDesc& y) {
#ifdef NPU_WITH_CUDA
  if (y.device_type == NPU_CUDA) return copy_on_cuda(x, y, call.stream);
#endif
  return copy_on_host(x, y);
}

Status launch_cat(const OpCall& call) {
  const TensorDesc& y = call.outputs[0];
  const int64_t axis = positive_axis(attrs_of<AxisAttrs>(call).axis, y.rank);
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
