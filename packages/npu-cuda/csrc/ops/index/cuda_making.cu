// AxisMap, Triangle, OneHot and Arange on CUDA: one thread for each item of the output.
#include "ops/index/cuda_index.cuh"
#include "ops/index/cuda_numbers.cuh"
#include "ops/index/maps.h"

namespace npu::indexing {
namespace {

struct DeviceMap {
  MapLayout layout;
  FastDivision shape[NPU_MAX_RANK];
};

template <class T>
__global__ void __launch_bounds__(kThreads)
    map_items(const T* x, const T* fill, T* y, const DeviceMap map, int64_t n) {
  const int64_t item = first_item();
  if (item >= n) return;
  int64_t source = 0;
  bool is_inside = true;
  auto rest = static_cast<uint32_t>(item);
  for (int axis = map.layout.rank - 1; axis >= 0; --axis) {
    uint32_t next, c;
    map.shape[axis](rest, &next, &c);
    const int64_t place = map.layout.start[axis] + map.layout.step[axis] * int64_t{c};
    const int64_t at = source_of(map.layout.mode, place, map.layout.sizes[axis]);
    is_inside = is_inside && at >= 0;
    source += at * map.layout.x_strides[axis];
    rest = next;
  }
  y[item] = is_inside ? x[source] : *fill;
}

Status launch_map(const OpCall& call) {
  const TensorDesc &x = call.inputs[0], &y = call.outputs[0];
  if (y.numel == 0) return {};
  DeviceMap map{layout_of_map(call), {}};
  for (int i = 0; i < y.rank; ++i) map.shape[i] = FastDivision(static_cast<uint32_t>(y.shape[i]));
  const void* fill = call.num_inputs > 1 ? call.inputs[1].data : nullptr;
  return with_item_of(item_bytes(x.dtype), [&](auto item) {
    using T = decltype(item);
    return launch(map_items<T>, item_shape(y.numel), call.stream, static_cast<const T*>(x.data),
                  static_cast<const T*>(fill), static_cast<T*>(y.data), map, y.numel);
  });
}

Status load_map(const OpCall& call, void** state) {
  return with_item_of(item_bytes(call.inputs[0].dtype),
                      [&](auto item) { return load_kernel<map_items<decltype(item)>>(call, state); });
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    triangle_items(const T* x, T* y, FastDivision rows, FastDivision columns, const TriangleAttrs attrs,
                   int64_t n) {
  const int64_t item = first_item();
  if (item >= n) return;
  uint32_t row, column, matrix, i;
  columns(static_cast<uint32_t>(item), &row, &column);
  rows(row, &matrix, &i);
  const int64_t distance = int64_t{column} - int64_t{i};
  const bool is_kept = attrs.upper ? distance >= attrs.diagonal : distance <= attrs.diagonal;
  y[item] = is_kept ? x[item] : T{};
}

Status launch_triangle(const OpCall& call) {
  const TensorDesc &x = call.inputs[0], &y = call.outputs[0];
  if (y.numel == 0) return {};
  const FastDivision rows(static_cast<uint32_t>(x.shape[x.rank - 2])),
      columns(static_cast<uint32_t>(x.shape[x.rank - 1]));
  return with_item_of(item_bytes(x.dtype), [&](auto item) {
    using T = decltype(item);
    return launch(triangle_items<T>, item_shape(y.numel), call.stream, static_cast<const T*>(x.data),
                  static_cast<T*>(y.data), rows, columns, attrs_of<TriangleAttrs>(call), y.numel);
  });
}

Status load_triangle(const OpCall& call, void** state) {
  return with_item_of(item_bytes(call.inputs[0].dtype),
                      [&](auto item) { return load_kernel<triangle_items<decltype(item)>>(call, state); });
}

__global__ void __launch_bounds__(kThreads)
    one_hot_items(const void* index, bool is_long, int64_t* y, FastDivision classes, int64_t n) {
  const int64_t item = first_item();
  if (item >= n) return;
  uint32_t place, column;
  classes(static_cast<uint32_t>(item), &place, &column);
  y[item] = inside(index_at(index, is_long, place), classes.divisor, false) == column;
}

Status launch_one_hot(const OpCall& call) {
  const TensorDesc &index = call.inputs[0], &y = call.outputs[0];
  if (y.numel == 0) return {};
  return launch(one_hot_items, item_shape(y.numel), call.stream, index.data, index.dtype == kInt64,
                static_cast<int64_t*>(y.data), FastDivision(static_cast<uint32_t>(y.shape[y.rank - 1])),
                y.numel);
}

template <class T>
__global__ void __launch_bounds__(kThreads) arange_items(T* y, double start, double step, int64_t n) {
  const int64_t i = first_item();
  if (i >= n) return;
  if constexpr (std::is_floating_point_v<T>) y[i] = static_cast<T>(start + step * static_cast<double>(i));
  else y[i] = static_cast<T>(static_cast<int64_t>(start) + static_cast<int64_t>(step) * i);
}

// Calls f with a number of a dtype that arange_supported takes.
template <class F>
Status with_counted(DType dtype, F f) {
  return with_device_number(dtype, [&](auto item) {
    if constexpr (std::is_arithmetic_v<decltype(item)>) return f(item);
    else return Status::internal("there is no range of " + name_of(dtype));
  });
}

Status launch_arange(const OpCall& call) {
  const TensorDesc& y = call.outputs[0];
  const ArangeAttrs attrs = attrs_of<ArangeAttrs>(call);
  if (y.numel == 0) return {};
  return with_counted(y.dtype, [&](auto item) {
    using T = decltype(item);
    return launch(arange_items<T>, item_shape(y.numel), call.stream, static_cast<T*>(y.data), attrs.start,
                  attrs.step, y.numel);
  });
}

Status load_arange(const OpCall& call, void** state) {
  return with_counted(call.outputs[0].dtype,
                      [&](auto item) { return load_kernel<arange_items<decltype(item)>>(call, state); });
}

}  // namespace

std::vector<KernelPtr> making_cuda_kernels() {
  return {make_kernel({kAxisMap, "axis_map.any.cuda", DeviceType::Cuda},
                      {supported_near<axis_map_supported>, launch_map, nullptr, nullptr, load_map}),
          make_kernel({kTriangle, "triangle.any.cuda", DeviceType::Cuda},
                      {supported_near<triangle_supported>, launch_triangle, nullptr, nullptr, load_triangle}),
          make_kernel({kOneHot, "one_hot.any.cuda", DeviceType::Cuda},
                      {supported_near<one_hot_supported>, launch_one_hot, nullptr, nullptr,
                       load_kernel<one_hot_items>}),
          make_kernel({kArange, "arange.any.cuda", DeviceType::Cuda},
                      {supported_near<arange_supported>, launch_arange, nullptr, nullptr, load_arange})};
}

}  // namespace npu::indexing
