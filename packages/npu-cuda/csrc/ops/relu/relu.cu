// relu: y = max(x, 0), elementwise. f32, f16, bf16; any shape, contiguous, in place allowed. NaN stays NaN, and -0.0
// stays -0.0. The variant `vec` takes tensors aligned to 16 bytes.
#include "ops/relu/relu.h"

#include "ops/device_floats.h"
#include "ops/elementwise_grid.h"
#include "ops/kernel_loading.h"

namespace npu {
namespace {

template <class T>
__device__ T relu(T x) {
  return widen(x) < 0.0f ? narrow<T>(0.0f) : x;
}

template <class T>
__global__ void relu_items(const T* x, T* y, int64_t n) {
  for (int64_t i = first_item(); i < n; i += item_step()) y[i] = relu(x[i]);
}

template <class T>
__global__ void relu_vectors(const T* x, T* y, int64_t n) {
  const int64_t count = n / kVectorItems<T>;
  const auto* from = reinterpret_cast<const Vector<T>*>(x);
  auto* to = reinterpret_cast<Vector<T>*>(y);
  Vector<T> vectors[kVectorsPerThread];
#pragma unroll
  for (int v = 0; v < kVectorsPerThread; ++v) {
    const int64_t i = first_vector() + v * kThreads;
    if (i < count) vectors[v] = from[i];
  }
#pragma unroll
  for (int v = 0; v < kVectorsPerThread; ++v) {
    const int64_t i = first_vector() + v * kThreads;
    for (T& item : vectors[v].items) item = relu(item);
    if (i < count) to[i] = vectors[v];
  }
  const int64_t rest = count * kVectorItems<T> + threadIdx.x;
  if (blockIdx.x == 0 && rest < n) y[rest] = relu(x[rest]);
}

template <class T>
Status supported(const OpCall& call) {
  return relu_supported(call, kDTypeOf<T>);
}

template <class T>
Status supported_vectors(const OpCall& call) {
  NPU_TRY(supported<T>(call));
  NPU_TRY(expect_alignment(call.inputs[0], kVectorBytes, "x"));
  return expect_alignment(call.outputs[0], kVectorBytes, "y");
}

template <class T>
Status run(void (*kernel)(const T*, T*, int64_t), const LaunchShape& shape, const OpCall& call) {
  const TensorDesc &x = call.inputs[0], &y = call.outputs[0];
  if (y.numel == 0) return {};
  return launch(kernel, shape, call.stream, static_cast<const T*>(x.data), static_cast<T*>(y.data), y.numel);
}

template <class T>
Status launch_items(const OpCall& call) {
  NPU_TRY(supported<T>(call));
  return run(relu_items<T>, item_shape(call.outputs[0].numel), call);
}

template <class T>
Status launch_vectors(const OpCall& call) {
  NPU_TRY(supported_vectors<T>(call));
  return run(relu_vectors<T>, vector_shape<T>(call.outputs[0].numel), call);
}

template <class T>
void add_kernels(const std::string& dtype, std::vector<KernelPtr>* out) {
  const std::string id = "relu." + dtype + ".cuda";
  out->push_back(make_kernel({OpKind::EltwiseRelu, id, DeviceType::Cuda, 10},
                             {supported<T>, launch_items<T>, relu_cost, nullptr, load_kernel<relu_items<T>>}, kDTypeOf<T>));
  out->push_back(make_kernel({OpKind::EltwiseRelu, id + ".vec", DeviceType::Cuda, 20},
                             {supported_vectors<T>, launch_vectors<T>, relu_cost, nullptr, load_kernel<relu_vectors<T>>},
                             kDTypeOf<T>));
}

}  // namespace

std::vector<KernelPtr> relu_cuda_kernels() {
  std::vector<KernelPtr> kernels;
  add_kernels<float>("f32", &kernels);
  add_kernels<__half>("f16", &kernels);
  add_kernels<__nv_bfloat16>("bf16", &kernels);
  return kernels;
}

}  // namespace npu
