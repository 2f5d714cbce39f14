// gemm: D = alpha * op(A) op(B) + beta * C in f32. A block makes a square of 64 x 64 of D from strips of op(A) and
// op(B), 16 deep, in shared memory; each of its 256 threads keeps 4 x 4 sums in registers. Any sizes.
#include "ops/gemm/gemm.h"

#include "ops/elementwise_grid.h"
#include "ops/kernel_loading.h"

namespace npu {
namespace {

constexpr int kTile = 64;   // rows and columns of D per block
constexpr int kDepth = 16;  // of a strip
constexpr int kSide = 4;    // rows and columns of D per thread
// Of a strip in shared memory: rows stay aligned to 16 bytes, and two threads of a warp at most store into one bank.
constexpr int kPitch = kTile + 4;
constexpr int kLoads = kTile * kDepth / kThreads;

struct Operand {
  const float* data;
  int64_t row_stride, column_stride;  // of op(A) as it is, of op(B) transposed: both are [m or n, k]
};

struct Problem {
  Operand a, b;
  const float* c;  // null: beta is 0
  float* d;
  int64_t m, n, k;
  float alpha, beta;
};

// Copies kTile rows from `top` of kDepth columns from `left` into shared memory, transposed; 0 beyond the matrix.
// Neighbouring threads read neighbouring items, whichever axis is contiguous.
__device__ void load_strip(const Operand& matrix, int64_t rows, int64_t columns, int64_t top, int64_t left,
                           float (*strip)[kPitch]) {
  const bool along_columns = matrix.column_stride == 1;
#pragma unroll
  for (int load = 0; load < kLoads; ++load) {
    const int item = load * kThreads + static_cast<int>(threadIdx.x);
    const int row = along_columns ? item / kDepth : item % kTile;
    const int column = along_columns ? item % kDepth : item / kTile;
    const bool is_inside = top + row < rows && left + column < columns;
    strip[column][row] =
        is_inside ? matrix.data[(top + row) * matrix.row_stride + (left + column) * matrix.column_stride] : 0.0f;
  }
}

__global__ __launch_bounds__(kThreads) void gemm_tiles(const Problem problem, int64_t tiles_across) {
  __shared__ float a[kDepth][kPitch];
  __shared__ float b[kDepth][kPitch];
  const int64_t top = blockIdx.x / tiles_across * kTile, left = blockIdx.x % tiles_across * kTile;
  const int row = static_cast<int>(threadIdx.x) / (kTile / kSide) * kSide;
  const int column = static_cast<int>(threadIdx.x) % (kTile / kSide) * kSide;
  float sums[kSide][kSide] = {};
  for (int64_t start = 0; start < problem.k; start += kDepth) {
    load_strip(problem.a, problem.m, problem.k, top, start, a);
    load_strip(problem.b, problem.n, problem.k, left, start, b);
    __syncthreads();
#pragma unroll
    for (int p = 0; p < kDepth; ++p) {
#pragma unroll
      for (int i = 0; i < kSide; ++i) {
#pragma unroll
        for (int j = 0; j < kSide; ++j) sums[i][j] = fmaf(a[p][row + i], b[p][column + j], sums[i][j]);
      }
    }
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < kSide; ++i) {
#pragma unroll
    for (int j = 0; j < kSide; ++j) {
      if (top + row + i >= problem.m || left + column + j >= problem.n) continue;
      const int64_t at = (top + row + i) * problem.n + left + column + j;
      const float product = problem.alpha * sums[i][j];
      problem.d[at] = problem.c ? fmaf(problem.beta, problem.c[at], product) : product;
    }
  }
}

int64_t tiles(int64_t size) { return (size + kTile - 1) / kTile; }

Status supported(const OpCall& call) {
  NPU_TRY(gemm_supported(call, kFloat32));
  const GemmSizes sizes = gemm_sizes(call);
  if (double(tiles(sizes.m)) * double(tiles(sizes.n)) < double(0x7fffffff)) return {};
  return Status::not_implemented("D has more than 2^31 tiles of 64 x 64");
}

Operand operand(const TensorDesc& tensor, bool is_transposed) {
  const int64_t pitch = tensor.shape[1];
  return {static_cast<const float*>(tensor.data), is_transposed ? 1 : pitch, is_transposed ? pitch : 1};
}

Status launch_tiles(const OpCall& call) {
  if (call.outputs[0].numel == 0) return {};
  const GemmAttrs attrs = attrs_of<GemmAttrs>(call);
  const GemmSizes sizes = gemm_sizes(call);
  const float* c = attrs.beta == 0 ? nullptr : static_cast<const float*>(call.inputs[2].data);
  const Problem problem{operand(call.inputs[0], attrs.ta), operand(call.inputs[1], !attrs.tb), c,
                        static_cast<float*>(call.outputs[0].data), sizes.m, sizes.n, sizes.k, attrs.alpha, attrs.beta};
  const int64_t across = tiles(sizes.n);
  return launch(gemm_tiles, {blocks_for(tiles(sizes.m) * across, 1), dim3(kThreads)}, call.stream, problem, across);
}

}  // namespace

std::vector<KernelPtr> gemm_cuda_kernels() {
  return {make_kernel({OpKind::Gemm, "gemm.f32.cuda.simple", DeviceType::Cuda},
                      {supported, launch_tiles, gemm_cost, nullptr, load_kernel<gemm_tiles>})};
}

}  // namespace npu
