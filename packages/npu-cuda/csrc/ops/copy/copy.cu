// copy: x -> y of one dtype, any strides. What is contiguous in both is a
// copy of memory, what is transposed goes through squares in shared memory, the rest item by item.
#include "ops/copy/copy.h"

#include "ops/elementwise_grid.h"
#include "ops/kernel_loading.h"

namespace npu {
namespace {

constexpr int kSide = 32;  // of a square
constexpr int kRowsAtOnce = kThreads / kSide;

struct Bits128 {
  uint64_t low, high;
};

struct Place {
  int64_t x, y;  // in items
};

// Where item `index` of the axes before `end` is, counted in the order of y; `skipped` is an axis not to count.
__device__ Place place_of(const StridedPair& pair, int64_t index, int end, int skipped) {
  Place place{0, 0};
  for (int axis = end - 1; axis >= 0; --axis) {
    if (axis == skipped) continue;
    const int64_t next = index / pair.shape[axis], at = index - next * pair.shape[axis];
    place.x += at * pair.x_strides[axis];
    place.y += at * pair.y_strides[axis];
    index = next;
  }
  return place;
}

template <class T>
__global__ void copy_items(const T* x, T* y, const StridedPair pair, int64_t n) {
  for (int64_t i = first_item(); i < n; i += item_step()) {
    const Place place = place_of(pair, i, pair.rank, -1);
    y[place.y] = x[place.x];
  }
}

struct Squares {
  int axis;  // along which x is contiguous; y is along the last one
  int64_t down, across, slices;
};

template <class T>
__global__ void copy_squares(const T* x, T* y, const StridedPair pair, const Squares squares) {
  __shared__ T square[kSide][kSide + 1];  // one more keeps the columns in different banks
  const int last = pair.rank - 1;
  const int64_t slice = blockIdx.x / (squares.down * squares.across);
  const int64_t top = blockIdx.x / squares.across % squares.down * kSide;
  const int64_t left = blockIdx.x % squares.across * kSide;
  const int64_t rows = pair.shape[squares.axis], columns = pair.shape[last];
  const Place start = place_of(pair, slice, last, squares.axis);
  const int lane = static_cast<int>(threadIdx.x) % kSide, first = static_cast<int>(threadIdx.x) / kSide;
  for (int j = first; j < kSide; j += kRowsAtOnce) {
    if (left + j >= columns || top + lane >= rows) continue;
    square[j][lane] = x[start.x + (left + j) * pair.x_strides[last] + top + lane];
  }
  __syncthreads();
  for (int i = first; i < kSide; i += kRowsAtOnce) {
    if (left + lane >= columns || top + i >= rows) continue;
    y[start.y + (top + i) * pair.y_strides[squares.axis] + left + lane] = square[lane][i];
  }
}

Squares squares_of(const StridedPair& pair, int64_t numel) {
  const int axis = pair.transposed_axis();
  const int64_t rows = pair.shape[axis], columns = pair.shape[pair.last()];
  return {axis, (rows + kSide - 1) / kSide, (columns + kSide - 1) / kSide, numel / (rows * columns)};
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
  const Squares squares = squares_of(pair, numel);
  if (double(squares.down) * double(squares.across) * double(squares.slices) < double(0x7fffffff)) return {};
  return Status::not_implemented("there are more than 2^31 squares of 32 x 32");
}

Status launch_memory(const OpCall& call) {
  const TensorDesc &x = call.inputs[0], &y = call.outputs[0];
  if (y.numel == 0) return {};
  return cuda_status(cudaMemcpyAsync(y.data, x.data, size_t(nbytes(y)), cudaMemcpyDeviceToDevice,
                                     static_cast<cudaStream_t>(call.stream)), "cudaMemcpyAsync");
}

// Calls `f` with an item of the size that the call has.
template <class F>
Status with_item(const OpCall& call, F f) {
  switch (item_bytes(call.inputs[0].dtype)) {
    case 1: return f(uint8_t{});
    case 2: return f(uint16_t{});
    case 4: return f(uint32_t{});
    case 8: return f(uint64_t{});
    default: return f(Bits128{});
  }
}

template <class T>
Status run_items(const OpCall& call) {
  const TensorDesc &x = call.inputs[0], &y = call.outputs[0];
  if (y.numel == 0) return {};
  return launch(copy_items<T>, item_shape(y.numel), call.stream, static_cast<const T*>(x.data),
                static_cast<T*>(y.data), collapse(x, y), y.numel);
}

template <class T>
Status run_squares(const OpCall& call) {
  const TensorDesc &x = call.inputs[0], &y = call.outputs[0];
  if (y.numel == 0) return {};
  const StridedPair pair = collapse(x, y);
  const Squares squares = squares_of(pair, y.numel);
  const LaunchShape shape{blocks_for(squares.down * squares.across * squares.slices, 1), dim3(kThreads)};
  return launch(copy_squares<T>, shape, call.stream, static_cast<const T*>(x.data), static_cast<T*>(y.data), pair, squares);
}

Status launch_squares(const OpCall& call) {
  return with_item(call, [&](auto item) { return run_squares<decltype(item)>(call); });
}

Status load_squares(const OpCall& call, void** state) {
  return with_item(call, [&](auto item) { return load_kernel<copy_squares<decltype(item)>>(call, state); });
}

Status launch_strided(const OpCall& call) {
  return with_item(call, [&](auto item) { return run_items<decltype(item)>(call); });
}

Status load_strided(const OpCall& call, void** state) {
  return with_item(call, [&](auto item) {
    return load_kernel<copy_items<decltype(item)>>(call, state);
  });
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
      kernel("copy.any.cuda", 10, {copy_supported, launch_strided, copy_cost, nullptr, load_strided}),
  };
}

}  // namespace npu
