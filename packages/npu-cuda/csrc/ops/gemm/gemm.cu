// Gemm and GemmEpilogue. A block makes a square of 64 x 64 of D from strips of op(A) and op(B), 16 deep, in shared
// memory; each of its 256 threads keeps 4 x 4 sums in registers. Any sizes and strides.
#include "ops/gemm/epilogue.h"
#include "ops/kernel_loading.h"
#include "ops/pointwise/cuda_rows.cuh"

namespace npu {
namespace {

using namespace gemm;
using pointwise::Value;

constexpr int kTile = 64;   // rows and columns of D per block
constexpr int kDepth = 16;  // of a strip
constexpr int kSide = 4;    // rows and columns of D per thread
// Of a strip in shared memory: rows stay aligned to 16 bytes, and two threads of a warp at most store into one bank.
constexpr int kPitch = kTile + 4;
constexpr int kLoads = kTile * kDepth / kThreads;

// What follows the product; no bias and no aux are null.
struct Ending {
  Epilogue epilogue;
  const void* bias;
  int64_t bias_stride;
  Operand aux;
};

__device__ int64_t offset_of(const Problem& problem, const Operand& operand, int64_t item) {
  int64_t offset = 0;
  for (int axis = problem.batch_rank - 1; axis >= 0; --axis) {
    offset += item % problem.batch_shape[axis] * operand.batch[axis];
    item /= problem.batch_shape[axis];
  }
  return offset;
}

template <class Number>
__device__ Value<Number> read_at(const void* data, Element element, int64_t at) {
  const int bytes = element == Element::Float64 ? 8 : element == Element::Float32 ? 4 : 2;
  return pointwise::read_element<Number>(static_cast<const char*>(data) + at * bytes, element, 0);
}

template <class Number>
__device__ void write_at(Value<Number> value, void* data, Element element, int64_t at) {
  const int bytes = element == Element::Float64 ? 8 : element == Element::Float32 ? 4 : 2;
  pointwise::write_element(value, static_cast<char*>(data) + at * bytes, element, 0);
}

// Copies kTile rows from `top` of kDepth columns from `left` into shared memory, transposed; 0 beyond the matrix.
// Neighbouring threads read neighbouring items, whichever axis is contiguous.
template <class T, class Number>
__device__ void load_strip(const T* data, int64_t row_stride, int64_t column_stride, int64_t rows, int64_t columns,
                           int64_t top, int64_t left, Number (*strip)[kPitch]) {
  const bool along_columns = column_stride == 1;
#pragma unroll
  for (int load = 0; load < kLoads; ++load) {
    const int item = load * kThreads + static_cast<int>(threadIdx.x);
    const int row = along_columns ? item / kDepth : item % kTile;
    const int column = along_columns ? item % kDepth : item / kTile;
    const bool is_inside = top + row < rows && left + column < columns;
    const int64_t at = (top + row) * row_stride + (left + column) * column_stride;
    if constexpr (sizeof(T) == 8) strip[column][row] = is_inside ? data[at] : 0.0;
    else strip[column][row] = is_inside ? widen(data[at]) : 0.0f;
  }
}

// An element of D, from the product.
template <class Number>
__device__ Value<Number> end(const Problem& problem, const Ending& ending, Value<Number> z, int64_t row,
                             int64_t column) {
  using V = Value<Number>;
  if (ending.bias) z = z + read_at<Number>(ending.bias, problem.d.element, column * ending.bias_stride);
  const int64_t at = row * ending.aux.row + column * ending.aux.column;
  switch (ending.epilogue) {
    case BiasReluAux: case BiasGeluAux: write_at(z, ending.aux.data, ending.aux.element, at); break;
    default: break;
  }
  switch (ending.epilogue) {
    case BiasRelu: case Relu: case BiasReluAux: return pointwise::op::EltwiseRelu::at<V>({}, z).of[0];
    case BiasGeluAux: return pointwise::op::GeluTanh::at<V>({}, z).of[0];
    case DRelu: case DReluBgrad:
      return pointwise::op::ReluBwd::at<V>({}, z, read_at<Number>(ending.aux.data, ending.aux.element, at)).of[0];
    case DGeluBgrad:
      return pointwise::op::GeluTanhBwd::at<V>({}, z, read_at<Number>(ending.aux.data, ending.aux.element, at)).of[0];
    default: return z;
  }
}

template <class T, class Number>
__global__ __launch_bounds__(kThreads) void gemm_tiles(const Problem problem, const Ending ending, int64_t tiles_down,
                                                       int64_t tiles_across) {
  __shared__ Number a[kDepth][kPitch];
  __shared__ Number b[kDepth][kPitch];
  const int64_t item = blockIdx.x / tiles_across / tiles_down;
  const int64_t top = blockIdx.x / tiles_across % tiles_down * kTile, left = blockIdx.x % tiles_across * kTile;
  const T* a_data = static_cast<const T*>(problem.a.data) + offset_of(problem, problem.a, item);
  const T* b_data = static_cast<const T*>(problem.b.data) + offset_of(problem, problem.b, item);
  const int row = static_cast<int>(threadIdx.x) / (kTile / kSide) * kSide;
  const int column = static_cast<int>(threadIdx.x) % (kTile / kSide) * kSide;
  Number sums[kSide][kSide] = {};
  for (int64_t start = 0; start < problem.k; start += kDepth) {
    load_strip(a_data, problem.a.row, problem.a.column, problem.m, problem.k, top, start, a);
    load_strip(b_data, problem.b.column, problem.b.row, problem.n, problem.k, left, start, b);
    __syncthreads();
#pragma unroll
    for (int p = 0; p < kDepth; ++p) {
#pragma unroll
      for (int i = 0; i < kSide; ++i) {
#pragma unroll
        for (int j = 0; j < kSide; ++j) sums[i][j] = fma(a[p][row + i], b[p][column + j], sums[i][j]);
      }
    }
    __syncthreads();
  }
  const int64_t c_start = problem.has_c ? offset_of(problem, problem.c, item) : 0;
  const int64_t d_start = offset_of(problem, problem.d, item);
#pragma unroll
  for (int i = 0; i < kSide; ++i) {
#pragma unroll
    for (int j = 0; j < kSide; ++j) {
      const int64_t m = top + row + i, n = left + column + j;
      if (m >= problem.m || n >= problem.n) continue;
      Number value = Number(problem.alpha) * sums[i][j];
      if (problem.has_c) {
        const int64_t at = c_start + m * problem.c.row + n * problem.c.column;
        value = fma(Number(problem.beta), read_at<Number>(problem.c.data, problem.c.element, at).raw, value);
      }
      const Value<Number> result = end(problem, ending, Value<Number>::of(value), m, n);
      write_at(result, problem.d.data, problem.d.element, d_start + m * problem.d.row + n * problem.d.column);
    }
  }
}

// The sums of the rows of D, a column a thread.
template <class Number>
__global__ void __launch_bounds__(kThreads) sum_rows(const Problem problem, void* sums, int64_t stride) {
  for (int64_t column = first_item(); column < problem.n; column += item_step()) {
    Number sum = 0;
    for (int64_t row = 0; row < problem.m; ++row) {
      sum += read_at<Number>(problem.d.data, problem.d.element, row * problem.d.row + column * problem.d.column).raw;
    }
    write_at(Value<Number>::of(sum), sums, problem.d.element, column * stride);
  }
}

int64_t tiles(int64_t size) { return (size + kTile - 1) / kTile; }

double blocks_of(const Problem& problem) {
  return double(problem.items) * double(tiles(problem.m)) * double(tiles(problem.n));
}

Status expect_few_tiles(const Problem& problem) {
  if (blocks_of(problem) < double(0x7fffffff)) return {};
  return Status::not_implemented("D has more than 2^31 tiles of 64 x 64");
}

template <class T>
using NumberOfElement = std::conditional_t<sizeof(T) == 8, double, float>;
// __half and __nv_bfloat16 are what the bits of A and B are on the device.
template <class T>
inline constexpr DType kOperandDType = sizeof(T) == 8 ? DType{2, 64, 1} : kDTypeOf<T>;

template <class T>
Status launch_tiles(const Problem& problem, const Ending& ending, void* stream) {
  const int64_t down = tiles(problem.m), across = tiles(problem.n);
  const LaunchShape shape{blocks_for(problem.items * down * across, 1), dim3(kThreads)};
  return launch(gemm_tiles<T, NumberOfElement<T>>, shape, stream, problem, ending, down, across);
}

template <class T>
Status supported(const OpCall& call) {
  NPU_TRY(expect_dtype(call.inputs[0], kOperandDType<T>, "A"));
  NPU_TRY(gemm_supported(call));
  return expect_few_tiles(problem_of(call));
}

template <class T>
Status launch_gemm(const OpCall& call) {
  if (call.outputs[0].numel == 0) return {};
  return launch_tiles<T>(problem_of(call), {Bias, nullptr, 0, {}}, call.stream);
}

template <class T>
Status supported_epilogue(const OpCall& call) {
  NPU_TRY(expect_dtype(call.inputs[0], kOperandDType<T>, "A"));
  NPU_TRY(epilogue_supported(call));
  return expect_few_tiles(EpilogueCall(call).problem(call));
}

template <class T>
Status launch_epilogue(const OpCall& call) {
  const EpilogueCall it(call);
  Problem problem = it.problem(call);
  if (problem.items == 0) problem.m = 0;  // D has no rows to sum
  Ending ending{it.epilogue, nullptr, 0, {}};
  if (it.bias) ending.bias = it.bias->data, ending.bias_stride = it.bias->strides[0];
  if (it.read_aux) ending.aux = operand_of(*it.read_aux, call.outputs[0]);
  if (it.written_aux) ending.aux = operand_of(*it.written_aux, call.outputs[0]);
  if (call.outputs[0].numel > 0) NPU_TRY(launch_tiles<T>(problem, ending, call.stream));
  if (!it.dbias || it.dbias->numel == 0) return {};
  return launch(sum_rows<NumberOfElement<T>>, item_shape(problem.n), call.stream, problem, it.dbias->data,
                it.dbias->strides[0]);
}

template <class T>
Status load(const OpCall& call, void** state) {
  NPU_TRY(load_kernel<sum_rows<NumberOfElement<T>>>(call, state));
  return load_kernel<gemm_tiles<T, NumberOfElement<T>>>(call, state);
}

template <class T>
KernelPtr gemm_kernel(const char* name) {
  return make_kernel({OpKind::Gemm, std::string("gemm.") + name + ".cuda.simple", DeviceType::Cuda},
                     {supported<T>, launch_gemm<T>, gemm_cost, nullptr, load<T>}, kOperandDType<T>);
}

template <class T>
KernelPtr epilogue_kernel(const char* name) {
  return make_kernel({OpKind::GemmEpilogue, std::string("gemm_epilogue.") + name + ".cuda.simple", DeviceType::Cuda},
                     {supported_epilogue<T>, launch_epilogue<T>, gemm_cost, nullptr, load<T>}, kOperandDType<T>);
}

}  // namespace

std::vector<KernelPtr> gemm_cuda_kernels() {
  return {gemm_kernel<float>("f32"), gemm_kernel<__half>("f16"), gemm_kernel<__nv_bfloat16>("bf16"),
          gemm_kernel<double>("f64")};
}

std::vector<KernelPtr> gemm_epilogue_cuda_kernels() {
  return {epilogue_kernel<float>("f32"), epilogue_kernel<__half>("f16"), epilogue_kernel<__nv_bfloat16>("bf16"),
          epilogue_kernel<double>("f64")};
}

}  // namespace npu
