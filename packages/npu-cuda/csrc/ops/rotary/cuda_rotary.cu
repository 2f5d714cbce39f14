// Rotary on CUDA: a thread turns a pair of elements, or copies one.
#include "ops/device_floats.h"
#include "ops/elementwise_grid.h"
#include "ops/kernel_loading.h"
#include "ops/rotary/rotary.h"

namespace npu::rotary {
namespace {

// Double is computed with as it is, others as float.
template <class T>
__device__ auto widened(T x) {
  if constexpr (sizeof(T) == 8) return x;
  else return widen(x);
}

template <class T, class Number>
__device__ T narrowed(Number x) {
  if constexpr (sizeof(T) == 8) return x;
  else return narrow<T>(x);
}

template <class T>
__device__ auto product(T a, T b) {
  return widened(narrowed<T>(widened(a) * widened(b)));
}

struct Places {
  int64_t x = 0, y = 0, cos = 0, sin = 0;
};

__device__ Places places_of_row(const Problem& p, int64_t row) {
  Places places;
  for (int axis = p.rank - 1; axis >= 0; --axis) {
    const int64_t at = row % p.shape[axis];
    places.x += at * p.x.strides[axis];
    places.y += at * p.y.strides[axis];
    places.cos += at * p.cos.strides[axis];
    places.sin += at * p.sin.strides[axis];
    row /= p.shape[axis];
  }
  return places;
}

template <class T>
__global__ void __launch_bounds__(kThreads) rotate_rows(const Problem p, int64_t items) {
  const int64_t of_row = p.half + p.size - p.width;
  for (int64_t item = first_item(); item < items; item += item_step()) {
    const Places at = places_of_row(p, item / of_row);
    const T* x = reinterpret_cast<const T*>(p.x.data) + at.x;
    T* y = reinterpret_cast<T*>(p.y.data) + at.y;
    const int64_t i = item % of_row, j = i + p.half;
    if (i >= p.half) {
      y[j * p.y.column] = x[j * p.x.column];
      continue;
    }
    const T* cos = reinterpret_cast<const T*>(p.cos.data) + at.cos;
    const T* sin = reinterpret_cast<const T*>(p.sin.data) + at.sin;
    const T first = x[i * p.x.column], second = x[j * p.x.column];
    y[i * p.y.column] = narrowed<T>(product(first, cos[i * p.cos.column]) - product(second, sin[i * p.sin.column]));
    y[j * p.y.column] = narrowed<T>(product(second, cos[j * p.cos.column]) + product(first, sin[j * p.sin.column]));
  }
}

template <class T>
Status launch_rows(const OpCall& call) {
  for (int item = 0; item < call.num_outputs; ++item) {
    const Problem problem = problem_of(call, item);
    const int64_t items = problem.rows * (problem.half + problem.size - problem.width);
    if (items == 0) continue;
    NPU_TRY(launch(rotate_rows<T>, item_shape(items), call.stream, problem, items));
  }
  return {};
}

template <class T>
constexpr DType dtype_of() {
  if constexpr (sizeof(T) == 8) return DType{2, 64, 1};
  else return kDTypeOf<T>;
}

template <class T>
Status supported(const OpCall& call) {
  return check(call, dtype_of<T>());
}

template <class T>
KernelPtr kernel(const char* id) {
  return make_kernel({kRotary, id, DeviceType::Cuda},
                     {supported<T>, launch_rows<T>, cost, nullptr, load_kernel<rotate_rows<T>>}, dtype_of<T>());
}

}  // namespace

std::vector<KernelPtr> cuda_kernels() {
  return {kernel<float>("rotary.f32.cuda"), kernel<__nv_bfloat16>("rotary.bf16.cuda"), kernel<__half>("rotary.f16.cuda"),
          kernel<double>("rotary.f64.cuda")};
}

}  // namespace npu::rotary
