#include "ops/relu/relu.h"

namespace npu {

Status relu_supported(const OpCall& call, DType dtype) {
  NPU_TRY(expect_dtype(call.inputs[0], dtype, "x"));
  NPU_TRY(expect_dtype(call.outputs[0], dtype, "y"));
  NPU_TRY(expect_same_shape(call.inputs[0], call.outputs[0], "x", "y"));
  NPU_TRY(expect_contiguous(call.inputs[0], "x"));
  return expect_contiguous(call.outputs[0], "y");
}

namespace {

Status supported(const OpCall& call) { return relu_supported(call, kFloat32); }

Status launch(const OpCall& call) {
  NPU_TRY(supported(call));
  const auto* x = static_cast<const float*>(call.inputs[0].data);
  auto* y = static_cast<float*>(call.outputs[0].data);
  for (int64_t i = 0; i < call.inputs[0].numel; ++i) y[i] = x[i] < 0.0f ? 0.0f : x[i];
  return {};
}

}  // namespace

std::vector<KernelPtr> relu_host_kernels() {
  return {make_kernel({OpKind::EltwiseRelu, "relu.f32.host", DeviceType::Host}, {supported, launch})};
}

}  // namespace npu
