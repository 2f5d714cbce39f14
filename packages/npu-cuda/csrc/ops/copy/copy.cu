// copy: x -> y of one dtype, any strides. What is contiguous in both is a
// copy of memory, what is transposed goes through squares in shared memory, the rest item by item.
#include "ops/copy/copy.h"

#include <algorithm>

#include "ops/elementwise_grid.h"
#include "ops/fast_division.h"
#include "ops/kernel_loading.h"

namespace npu {
namespace {

constexpr int kSide = 32;  // of a square
constexpr int kRowsAtOnce = kThreads / kSide;

// 16 bytes. Where their memory is aligned, one instruction moves them.
struct Bits128 {
  uint64_t low, high;
};
struct alignas(16) AlignedBits128 : Bits128 {};

struct Place {
  int64_t x, y;  // in items
};

// A StridedPair as kernels read it.
struct Axes {
  int rank = 0;
  FastDivision shape[NPU_MAX_RANK];
  int64_t x_strides[NPU_MAX_RANK], y_strides[NPU_MAX_RANK];
};

// But for the axes from `end` on, and the axis `skipped`.
Axes axes_of(const StridedPair& pair, int end, int skipped = -1) {
  Axes axes;
  for (int axis = 0; axis < end; ++axis) {
    if (axis == skipped) continue;
    axes.shape[axes.rank] = FastDivision(static_cast<uint32_t>(pair.shape[axis]));
    axes.x_strides[axes.rank] = pair.x_strides[axis];
    axes.y_strides[axes.rank++] = pair.y_strides[axis];
  }
  return axes;
}

// Where item `index` is, counted in the order of y.
__device__ Place place_of(const Axes& axes, uint32_t index) {
  Place place{0, 0};
  for (int axis = axes.rank - 1; axis >= 0; --axis) {
    uint32_t at = 0;
    axes.shape[axis](index, &index, &at);
    place.x += at * axes.x_strides[axis];
    place.y += at * axes.y_strides[axis];
  }
  return place;
}

template <class T>
__global__ void copy_items(const T* x, T* y, const Axes axes, int64_t n) {
  for (int64_t i = first_item(); i < n; i += item_step()) {
    const Place place = place_of(axes, static_cast<uint32_t>(i));
    y[place.y] = x[place.x];
  }
}

// Squares of the two axes along which x and y are contiguous; there are less than 2^31.
struct Squares {
  FastDivision in_slice, across;
  int64_t rows, columns;
  int64_t x_stride, y_stride;  // of a column of x, of a row of y
};

template <class T>
__global__ void copy_squares(const T* x, T* y, const Axes slices, const Squares squares) {
  __shared__ T square[kSide][kSide + 1];  // one more keeps the columns in different banks
  uint32_t slice, place, down, across;
  squares.in_slice(blockIdx.x, &slice, &place);
  squares.across(place, &down, &across);
  const int64_t top = int64_t{down} * kSide, left = int64_t{across} * kSide;
  const Place start = place_of(slices, slice);
  const int lane = static_cast<int>(threadIdx.x) % kSide, first = static_cast<int>(threadIdx.x) / kSide;
  for (int j = first; j < kSide; j += kRowsAtOnce) {
    if (left + j >= squares.columns || top + lane >= squares.rows) continue;
    square[j][lane] = x[start.x + (left + j) * squares.x_stride + top + lane];
  }
  __syncthreads();
  for (int i = first; i < kSide; i += kRowsAtOnce) {
    if (left + lane >= squares.columns || top + i >= squares.rows) continue;
    y[start.y + (top + i) * squares.y_stride + left + lane] = square[lane][i];
  }
}

struct SquareCounts {
  int64_t down, across, slices;
  double all() const { return double(down) * double(across) * double(slices); }
};

SquareCounts squares_of(const StridedPair& pair, int64_t numel) {
  const int64_t rows = pair.shape[pair.transposed_axis()], columns = pair.shape[pair.last()];
  return {(rows + kSide - 1) / kSide, (columns + kSide - 1) / kSide, numel / (rows * columns)};
}

Status supported_memory(const OpCall& call) {
  NPU_TRY(copy_supported(call));
  if (call.outputs[0].numel == 0 || collapse(call.inputs[0], call.outputs[0]).is_contiguous()) return {};
  return Status::not_implemented("x and y are not the same contiguous memory: x is " + text_of(call.inputs[0]) +
                                 ", y is " + text_of(call.outputs[0]));
}

Status supported_transposed(const OpCall& call) {
  NPU_TRY(copy_supported(call));
  const int64_t numel = call.outputs[0].numel;
  if (numel == 0) return {};
  const StridedPair pair = collapse(call.inputs[0], call.outputs[0]);
  if (pair.transposed_axis() < 0) return Status::not_implemented("y is no transposition of x");
  if (squares_of(pair, numel).all() < double(0x7fffffff)) return {};
  return Status::not_implemented("there are more than 2^31 squares of 32 x 32");
}

Status launch_memory(const OpCall& call) {
  const TensorDesc &x = call.inputs[0], &y = call.outputs[0];
  if (y.numel == 0) return {};
  return cuda_status(cudaMemcpyAsync(y.data, x.data, size_t(nbytes(y)), cudaMemcpyDeviceToDevice,
                                     static_cast<cudaStream_t>(call.stream)), "cudaMemcpyAsync");
}

// Calls `f` with an item of this size.
template <class F>
Status with_item(const OpCall& call, int64_t bytes, F f) {
  switch (bytes) {
    case 1: return f(uint8_t{});
    case 2: return f(uint16_t{});
    case 4: return f(uint32_t{});
    case 8: return f(uint64_t{});
  }
  const uint32_t alignment = std::min(call.inputs[0].alignment, call.outputs[0].alignment);
  return alignment >= alignof(AlignedBits128) ? f(AlignedBits128{}) : f(Bits128{});
}

// Makes items of neighbours along the last axis, up to 16 bytes, where all are aligned; returns their bytes.
int64_t widen_items(const OpCall& call, StridedPair* pair) {
  const int64_t bytes = item_bytes(call.inputs[0].dtype);
  const int last = pair->last();
  if (pair->x_strides[last] != 1 || pair->y_strides[last] != 1) return bytes;
  int64_t multiples = 16 | call.inputs[0].alignment | call.outputs[0].alignment | pair->shape[last] * bytes;
  for (int axis = 0; axis < last; ++axis) multiples |= (pair->x_strides[axis] | pair->y_strides[axis]) * bytes;
  const int64_t wide = std::max(bytes, multiples & -multiples), items = wide / bytes;
  pair->shape[last] /= items;
  for (int axis = 0; axis < last; ++axis) {
    pair->x_strides[axis] /= items;
    pair->y_strides[axis] /= items;
  }
  return wide;
}

template <class T>
Status run_items(const OpCall& call, const StridedPair& pair) {
  const TensorDesc &x = call.inputs[0], &y = call.outputs[0];
  const int64_t count = nbytes(y) / int64_t{sizeof(T)};
  return launch(copy_items<T>, item_shape(count), call.stream, static_cast<const T*>(x.data),
                static_cast<T*>(y.data), axes_of(pair, pair.rank), count);
}

template <class T>
Status run_squares(const OpCall& call) {
  const TensorDesc &x = call.inputs[0], &y = call.outputs[0];
  if (y.numel == 0) return {};
  const StridedPair pair = collapse(x, y);
  const SquareCounts counts = squares_of(pair, y.numel);
  const int axis = pair.transposed_axis(), last = pair.last();
  const Squares squares{FastDivision(static_cast<uint32_t>(counts.down * counts.across)),
                        FastDivision(static_cast<uint32_t>(counts.across)),
                        pair.shape[axis], pair.shape[last], pair.x_strides[last], pair.y_strides[axis]};
  const LaunchShape shape{blocks_for(counts.down * counts.across * counts.slices, 1), dim3(kThreads)};
  return launch(copy_squares<T>, shape, call.stream, static_cast<const T*>(x.data), static_cast<T*>(y.data),
                axes_of(pair, last, axis), squares);
}

int64_t own_bytes(const OpCall& call) { return item_bytes(call.inputs[0].dtype); }

Status launch_squares(const OpCall& call) {
  return with_item(call, own_bytes(call), [&](auto item) { return run_squares<decltype(item)>(call); });
}

Status load_squares(const OpCall& call, void** state) {
  return with_item(call, own_bytes(call),
                   [&](auto item) { return load_kernel<copy_squares<decltype(item)>>(call, state); });
}

Status supported_strided(const OpCall& call) {
  NPU_TRY(copy_supported(call));
  if (call.outputs[0].numel < int64_t{1} << 31) return {};
  return Status::not_implemented("y has " + std::to_string(call.outputs[0].numel) +
                                 " elements; it takes less than 2^31");
}

Status launch_strided(const OpCall& call) {
  if (call.outputs[0].numel == 0) return {};
  StridedPair pair = collapse(call.inputs[0], call.outputs[0]);
  return with_item(call, widen_items(call, &pair),
                   [&](auto item) { return run_items<decltype(item)>(call, pair); });
}

Status load_strided(const OpCall& call, void** state) {
  for (int64_t bytes = own_bytes(call); bytes < 16; bytes *= 2) {
    NPU_TRY(with_item(call, bytes,
                      [&](auto item) { return load_kernel<copy_items<decltype(item)>>(call, state); }));
  }
  NPU_TRY(load_kernel<copy_items<Bits128>>(call, state));
  return load_kernel<copy_items<AlignedBits128>>(call, state);
}

KernelPtr kernel(const char* id, int priority, KernelFunctions functions) {
  return make_kernel({OpKind::Copy, id, DeviceType::Cuda, priority}, functions);
}

}  // namespace

Status copy_on_cuda(const TensorDesc& x, const TensorDesc& y, void* stream) {
  OpCall call{};
  call.num_inputs = call.num_outputs = 1;
  call.inputs = &x;
  call.outputs = &y;
  call.stream = stream;
  if (supported_memory(call).ok()) return launch_memory(call);
  return supported_transposed(call).ok() ? launch_squares(call) : launch_strided(call);
}

Status load_copies(const OpCall& call, void** state) {
  NPU_TRY(load_squares(call, state));
  return load_strided(call, state);
}

std::vector<KernelPtr> copy_cuda_kernels() {
  return {
      kernel("copy.any.cuda.memory", 30, {supported_memory, launch_memory, copy_cost}),
      kernel("copy.any.cuda.transpose", 20, {supported_transposed, launch_squares, copy_cost, nullptr, load_squares}),
      kernel("copy.any.cuda", 10, {supported_strided, launch_strided, copy_cost, nullptr, load_strided}),
  };
}

}  // namespace npu
