// add: y = a + alpha * b, elementwise, as a fused multiply-add in f32. f32, f16, bf16; one shape, contiguous; y may be
// a or b. The variant `vec` takes tensors aligned to 16 bytes.
#include "ops/add/add.h"

#include "ops/device_floats.h"
#include "ops/elementwise_grid.h"
#include "ops/kernel_loading.h"

namespace npu {
namespace {

template <class T>
__device__ T add(T a, T b, float alpha) {
  return narrow<T>(fmaf(alpha, widen(b), widen(a)));
}

template <class T>
__global__ void add_items(const T* a, const T* b, T* y, float alpha, int64_t n) {
  for (int64_t i = first_item(); i < n; i += item_step()) y[i] = add(a[i], b[i], alpha);
}

template <class T>
__global__ void add_vectors(const T* a, const T* b, T* y, float alpha, int64_t n) {
  const int64_t count = n / kVectorItems<T>;
  const auto* from_a = reinterpret_cast<const Vector<T>*>(a);
  const auto* from_b = reinterpret_cast<const Vector<T>*>(b);
  auto* to = reinterpret_cast<Vector<T>*>(y);
  Vector<T> left[kVectorsPerThread], right[kVectorsPerThread];
#pragma unroll
  for (int v = 0; v < kVectorsPerThread; ++v) {
    const int64_t i = first_vector() + v * kThreads;
    if (i < count) left[v] = from_a[i];
    if (i < count) right[v] = from_b[i];
  }
#pragma unroll
  for (int v = 0; v < kVectorsPerThread; ++v) {
    const int64_t i = first_vector() + v * kThreads;
    for (int k = 0; k < kVectorItems<T>; ++k) left[v].items[k] = add(left[v].items[k], right[v].items[k], alpha);
    if (i < count) to[i] = left[v];
  }
  const int64_t rest = count * kVectorItems<T> + threadIdx.x;
  if (blockIdx.x == 0 && rest < n) y[rest] = add(a[rest], b[rest], alpha);
}

template <class T>
Status supported(const OpCall& call) {
  return add_supported(call, kDTypeOf<T>);
}

template <class T>
Status supported_vectors(const OpCall& call) {
  NPU_TRY(supported<T>(call));
  NPU_TRY(expect_alignment(call.inputs[0], kVectorBytes, "a"));
  NPU_TRY(expect_alignment(call.inputs[1], kVectorBytes, "b"));
  return expect_alignment(call.outputs[0], kVectorBytes, "y");
}

template <class T>
Status run(void (*kernel)(const T*, const T*, T*, float, int64_t), const LaunchShape& shape, const OpCall& call) {
  const TensorDesc &a = call.inputs[0], &b = call.inputs[1], &y = call.outputs[0];
  if (y.numel == 0) return {};
  return launch(kernel, shape, call.stream, static_cast<const T*>(a.data), static_cast<const T*>(b.data),
                static_cast<T*>(y.data), attrs_of<AddAttrs>(call).alpha, y.numel);
}

template <class T>
Status launch_items(const OpCall& call) {
  NPU_TRY(supported<T>(call));
  return run(add_items<T>, item_shape(call.outputs[0].numel), call);
}

template <class T>
Status launch_vectors(const OpCall& call) {
  NPU_TRY(supported_vectors<T>(call));
  return run(add_vectors<T>, vector_shape<T>(call.outputs[0].numel), call);
}

template <class T>
void add_kernels(const std::string& dtype, std::vector<KernelPtr>* out) {
  const std::string id = "add." + dtype + ".cuda";
  out->push_back(make_kernel({OpKind::EltwiseAdd, id, DeviceType::Cuda, 10},
                             {supported<T>, launch_items<T>, add_cost, nullptr, load_kernel<add_items<T>>}, kDTypeOf<T>));
  out->push_back(make_kernel({OpKind::EltwiseAdd, id + ".vec", DeviceType::Cuda, 20},
                             {supported_vectors<T>, launch_vectors<T>, add_cost, nullptr, load_kernel<add_vectors<T>>},
                             kDTypeOf<T>));
}

}  // namespace

std::vector<KernelPtr> add_cuda_kernels() {
  std::vector<KernelPtr> kernels;
  add_kernels<float>("f32", &kernels);
  add_kernels<__half>("f16", &kernels);
  add_kernels<__nv_bfloat16>("bf16", &kernels);
  return kernels;
}

}  // namespace npu
