// Attention on CUDA: a block of threads computes one query, its scores are in shared memory. A simple kernel, for any
// layout and mask; it is there to be compared with.
#include <cfloat>

#include "ops/attention/attention.h"
#include "ops/device_floats.h"
#include "ops/elementwise_grid.h"
#include "ops/kernel_loading.h"

namespace npu::attention {
namespace {

constexpr int64_t kMostKeys = 10000;  // whose scores fit in 40 KiB of shared memory

template <class T>
__device__ const T* element_of(const View& view, int64_t batch, int64_t head, int64_t row, int64_t element) {
  return reinterpret_cast<const T*>(view.data) + batch * view.strides[0] + head * view.strides[1] + row * view.strides[2] +
         element * view.strides[3];
}

// What is added to a score; -infinity where the query does not take the key.
template <class T>
__device__ float mask_of(const Geometry& g, int64_t batch, int64_t head, int64_t query, int64_t key) {
  if (g.is_causal && key > query) return -INFINITY;
  if (!g.has_mask) return 0;
  if (!g.mask_is_truth) return widen(*element_of<T>(g.mask, batch, head, query, key));
  return *element_of<uint8_t>(g.mask, batch, head, query, key) ? 0.0f : -INFINITY;
}

// Of all threads, each with its number; the same in all of them.
template <bool kIsSum>
__device__ float joined(float number, float* shared) {
  const int thread = static_cast<int>(threadIdx.x);
  shared[thread] = number;
  for (int width = kThreads / 2; width > 0; width /= 2) {
    __syncthreads();
    if (thread >= width) continue;
    const float other = shared[thread + width];
    shared[thread] = kIsSum ? shared[thread] + other : (shared[thread] > other || shared[thread] != shared[thread] ? shared[thread] : other);
  }
  __syncthreads();
  const float all = shared[0];
  __syncthreads();
  return all;
}

template <class T>
__global__ __launch_bounds__(kThreads) void attend_queries(const Geometry g) {
  __shared__ float shared[kThreads];
  float* const scores = dynamic_shared<float>();
  for (int64_t index = blockIdx.x; index < g.batch * g.heads * g.queries; index += gridDim.x) {
    const int64_t query = index % g.queries, head = index / g.queries % g.heads, batch = index / g.queries / g.heads;
    const int64_t group = head / (g.heads / g.groups);
    float most = -INFINITY;
    for (int64_t key = threadIdx.x; key < g.keys; key += kThreads) {
      float sum = 0;
      for (int64_t i = 0; i < g.size; ++i) {
        sum = fmaf(widen(*element_of<T>(g.q, batch, head, query, i)), widen(*element_of<T>(g.k, batch, group, key, i)), sum);
      }
      scores[key] = sum * g.scale + mask_of<T>(g, batch, head, query, key);
      most = scores[key] > most || scores[key] != scores[key] ? scores[key] : most;
    }
    most = joined<false>(most, shared);
    const float shift = most == -INFINITY ? 0 : most;
    float total = 0;
    for (int64_t key = threadIdx.x; key < g.keys; key += kThreads) {
      scores[key] = expf(scores[key] - shift);
      total += scores[key];
    }
    total = joined<true>(total, shared);
    for (int64_t i = threadIdx.x; i < g.value_size; i += kThreads) {
      float sum = 0;
      for (int64_t key = 0; key < g.keys; ++key) sum = fmaf(scores[key], widen(*element_of<T>(g.v, batch, group, key, i)), sum);
      *const_cast<T*>(element_of<T>(g.o, batch, head, query, i)) = narrow<T>(total == 0 ? 0.0f : sum / total);
    }
    if (g.has_lse && threadIdx.x == 0) *const_cast<float*>(element_of<float>(g.lse, batch, head, query, 0)) = most + logf(total);
    __syncthreads();
  }
}

Status supported(const OpCall& call) {
  NPU_TRY(check(call));
  const int64_t keys = call.inputs[1].shape[2];
  if (keys <= kMostKeys) return {};
  return Status::not_implemented(std::to_string(keys) + " keys are more than " + std::to_string(kMostKeys));
}

template <class T>
Status launch_queries(const OpCall& call) {
  if (call.outputs[0].numel == 0) return {};
  const Geometry geometry = geometry_of(call);
  const LaunchShape shape{blocks_for(geometry.batch * geometry.heads * geometry.queries, 1), dim3(kThreads),
                          sizeof(float) * size_t(geometry.keys)};
  return launch(attend_queries<T>, shape, call.stream, geometry);
}

template <class T>
KernelPtr kernel(const std::string& id) {
  return make_kernel({kAttention, id, DeviceType::Cuda},
                     {supported, launch_queries<T>, cost, nullptr, load_kernel<attend_queries<T>>}, kDTypeOf<T>);
}

}  // namespace

std::vector<KernelPtr> cuda_kernels() {
  return {kernel<float>("attention.f32.cuda"), kernel<__half>("attention.f16.cuda"), kernel<__nv_bfloat16>("attention.bf16.cuda")};
}

}  // namespace npu::attention
