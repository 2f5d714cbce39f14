// QuantizedGemm on a GPU. A warp makes one column of D, for some of its rows at a time: its lanes read pieces of a row of
// integers in turn, of 16 bytes where rows are aligned to them and a group has whole pieces, else of one byte.
#include "ops/device_floats.h"
#include "ops/kernel_loading.h"
#include "ops/quantized/quantized.h"

namespace npu::quantized {
namespace {

constexpr int kLanes = 32, kWarps = 4;  // of a block
constexpr int kRows = 4;                // of D at a time
constexpr int64_t kMostChunks = 65535;  // of rows: the blocks of a grid along y
constexpr int kPiece = 16;

__device__ int64_t place_of_row(const gemm::Problem& product, const gemm::Operand& operand, int64_t row) {
  int64_t offset = row % product.m * operand.row, item = row / product.m;
  for (int axis = product.batch_rank - 1; axis >= 0; --axis) {
    offset += item % product.batch_shape[axis] * operand.batch[axis];
    item /= product.batch_shape[axis];
  }
  return offset;
}

// The integers of a byte: one, or an even one and the next.
template <bool kIsPacked>
__device__ void unpack(uint8_t byte, float* integers) {
  const int both = static_cast<int8_t>(byte);
  if constexpr (kIsPacked) {
    const int even = ((both + 8) & 15) - 8;
    integers[0] = static_cast<float>(even);
    integers[1] = static_cast<float>((both - even) / 16);
  } else {
    integers[0] = static_cast<float>(both);
  }
}

template <class T, bool kIsPacked, int kBytes>
__global__ void __launch_bounds__(kLanes* kWarps) quantized_rows(const Problem problem) {
  constexpr int kOfByte = kIsPacked ? 2 : 1;
  const gemm::Problem& product = problem.product;
  const int64_t column = int64_t{blockIdx.x} * kWarps + threadIdx.y;
  if (column >= product.n) return;
  const int64_t row_bytes = product.k / kOfByte, rows = product.m * product.items;
  const uint8_t* const integers = problem.integers + column * row_bytes;
  const float* const scales = problem.scales + column * problem.groups;
  for (int64_t first = int64_t{blockIdx.y} * kRows; first < rows; first += int64_t{gridDim.y} * kRows) {
    const T* a[kRows];
    float sums[kRows] = {};
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      const int64_t row = first + i < rows ? first + i : rows - 1;
      a[i] = static_cast<const T*>(product.a.data) + place_of_row(product, product.a, row);
    }
    for (int64_t piece = threadIdx.x; piece < row_bytes / kBytes; piece += kLanes) {
      alignas(16) uint8_t bytes[kBytes];
      if constexpr (kBytes == kPiece) {
        *reinterpret_cast<uint4*>(bytes) = reinterpret_cast<const uint4*>(integers)[piece];
      } else {
        bytes[0] = integers[piece];
      }
      const int64_t k = piece * kBytes * kOfByte;
      float parts[kRows] = {};
#pragma unroll
      for (int byte = 0; byte < kBytes; ++byte) {
        float numbers[kOfByte];
        unpack<kIsPacked>(bytes[byte], numbers);
#pragma unroll
        for (int j = 0; j < kOfByte; ++j) {
          const int64_t at = (k + byte * kOfByte + j) * product.a.column;
#pragma unroll
          for (int i = 0; i < kRows; ++i) parts[i] += widen(a[i][at]) * numbers[j];
        }
      }
      const float scale = scales[k / problem.group];
#pragma unroll
      for (int i = 0; i < kRows; ++i) sums[i] += parts[i] * scale;
    }
#pragma unroll
    for (int distance = kLanes / 2; distance > 0; distance /= 2) {
#pragma unroll
      for (int i = 0; i < kRows; ++i) sums[i] += __shfl_xor_sync(~0u, sums[i], distance);
    }
    if (threadIdx.x != 0) continue;
    const float bias =
        problem.bias.data ? widen(static_cast<const T*>(problem.bias.data)[column * problem.bias.column]) : 0.0f;
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      if (first + i >= rows) continue;
      const int64_t at = place_of_row(product, product.d, first + i) + column * product.d.column;
      const float sum = sums[i] + bias;
      if (product.d.element == gemm::Element::Float32) static_cast<float*>(product.d.data)[at] = sum;
      else static_cast<T*>(product.d.data)[at] = narrow<T>(sum);
    }
  }
}

template <class T>
Status supported_on_device(const OpCall& call) {
  NPU_TRY(expect_dtype(call.inputs[0], kDTypeOf<T>, "A"));
  return supported(call);
}

// Whether rows of integers and their groups are made up of aligned pieces.
bool has_pieces(const OpCall& call, const Problem& problem) {
  const int64_t group_bytes = problem.is_packed ? problem.group / 2 : problem.group;
  return call.inputs[1].alignment >= kPiece && group_bytes > 0 && group_bytes % kPiece == 0;
}

template <class T>
Status launch_rows(const OpCall& call) {
  if (call.outputs[0].numel == 0) return {};
  const Problem problem = problem_of(call);
  const int64_t chunks = std::min((problem.rows() + kRows - 1) / kRows, kMostChunks);
  const LaunchShape shape{dim3(static_cast<unsigned>((problem.product.n + kWarps - 1) / kWarps), static_cast<unsigned>(chunks)),
                          dim3(kLanes, kWarps)};
  if (has_pieces(call, problem)) {
    if (problem.is_packed) return launch(quantized_rows<T, true, kPiece>, shape, call.stream, problem);
    return launch(quantized_rows<T, false, kPiece>, shape, call.stream, problem);
  }
  if (problem.is_packed) return launch(quantized_rows<T, true, 1>, shape, call.stream, problem);
  return launch(quantized_rows<T, false, 1>, shape, call.stream, problem);
}

template <class T>
Status load(const OpCall& call, void** state) {
  NPU_TRY((load_kernel<quantized_rows<T, true, kPiece>>(call, state)));
  NPU_TRY((load_kernel<quantized_rows<T, false, kPiece>>(call, state)));
  NPU_TRY((load_kernel<quantized_rows<T, true, 1>>(call, state)));
  return load_kernel<quantized_rows<T, false, 1>>(call, state);
}

template <class T>
KernelPtr kernel(const char* name) {
  return make_kernel({kQuantizedGemm, std::string("quantized_gemm.") + name + ".cuda", DeviceType::Cuda},
                     {supported_on_device<T>, launch_rows<T>, cost, nullptr, load<T>}, kDTypeOf<T>);
}

}  // namespace

std::vector<KernelPtr> cuda_kernels() { return {kernel<float>("f32"), kernel<__half>("f16"), kernel<__nv_bfloat16>("bf16")}; }

}  // namespace npu::quantized
