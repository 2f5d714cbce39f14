#include <algorithm>
#include <cstring>

#include "ops/gemm/gemm.h"
#include "ops/host_simd.h"

namespace npu {
namespace {

constexpr int64_t kRows = 6;       // of D that the inner loop keeps in registers, as two vectors a row
constexpr int64_t kColumns = 16;
constexpr int64_t kDepth = 256;    // of the strip of op(B) that stays in the first cache
constexpr int64_t kPanelRows = 96; // of op(A) that are packed at a time, and stay in the second cache

using Vector [[gnu::vector_size(32), gnu::aligned(4), gnu::may_alias]] = float;

struct Matrix {
  const float* data;
  int64_t row_stride, column_stride;

  const float* at(int64_t row, int64_t column) const { return data + row * row_stride + column * column_stride; }
};

struct Problem {
  GemmSizes sizes;
  Matrix a, b;     // op(A), op(B)
  const float* c;  // null: beta is 0
  float* d;
  float alpha, beta;
};

// Packed so that the inner loop reads both from start to end: op(A) in strips of kRows rows, op(B) as one strip of
// kColumns columns. What is beyond the matrix is 0.
struct Packed {
  alignas(64) float a[kPanelRows * kDepth];
  alignas(64) float b[kColumns * kDepth];
};

struct Multiply {
  [[gnu::always_inline]] static inline void pack_a(const Matrix& a, int64_t top, int64_t rows, int64_t start,
                                                   int64_t depth, float* packed) {
    for (int64_t strip = 0; strip < rows; strip += kRows) {
      const int64_t count = std::min(kRows, rows - strip);
      for (int64_t p = 0; p < depth; ++p) {
        for (int64_t i = 0; i < kRows; ++i) *packed++ = i < count ? *a.at(top + strip + i, start + p) : 0.0f;
      }
    }
  }

  [[gnu::always_inline]] static inline void pack_b(const Matrix& b, int64_t left, int64_t columns, int64_t start,
                                                   int64_t depth, float* packed) {
    for (int64_t p = 0; p < depth; ++p) {
      for (int64_t j = 0; j < kColumns; ++j) *packed++ = j < columns ? *b.at(start + p, left + j) : 0.0f;
    }
  }

  // tile = a strip of op(A) times the strip of op(B).
  [[gnu::always_inline]] static inline void multiply(const float* a, const float* b, int64_t depth, float* tile) {
    Vector sums[kRows][2] = {};
    for (int64_t p = 0; p < depth; ++p, a += kRows, b += kColumns) {
      const Vector left = *reinterpret_cast<const Vector*>(b), right = *reinterpret_cast<const Vector*>(b + 8);
#pragma GCC unroll 6
      for (int64_t i = 0; i < kRows; ++i) {
        sums[i][0] += a[i] * left;
        sums[i][1] += a[i] * right;
      }
    }
    std::memcpy(tile, sums, sizeof(sums));
  }

  // D = alpha * tile + beta * C the first time, D += alpha * tile after that.
  [[gnu::always_inline]] static inline void store(const Problem& problem, const float* tile, int64_t row, int64_t rows,
                                                  int64_t column, int64_t columns, bool is_first) {
    for (int64_t i = 0; i < rows; ++i) {
      const int64_t start = (row + i) * problem.sizes.n + column;
      const float* before = is_first ? problem.c : problem.d;
      const float factor = is_first ? problem.beta : 1.0f;
      for (int64_t j = 0; j < columns; ++j) {
        const float product = problem.alpha * tile[i * kColumns + j];
        problem.d[start + j] = before ? product + factor * before[start + j] : product;
      }
    }
  }

  [[gnu::always_inline]] static inline void run(const Problem* problem) {
    const auto [m, n, k] = problem->sizes;
    Packed packed;
    alignas(64) float tile[kRows * kColumns];
    // At least once, so that k = 0 writes D.
    for (int64_t start = 0; start == 0 || start < k; start += kDepth) {
      const int64_t depth = std::min(kDepth, k - start);
      for (int64_t top = 0; top < m; top += kPanelRows) {
        const int64_t panel_rows = std::min(kPanelRows, m - top);
        pack_a(problem->a, top, panel_rows, start, depth, packed.a);
        for (int64_t left = 0; left < n; left += kColumns) {
          const int64_t columns = std::min(kColumns, n - left);
          pack_b(problem->b, left, columns, start, depth, packed.b);
          for (int64_t strip = 0; strip < panel_rows; strip += kRows) {
            multiply(packed.a + strip * depth, packed.b, depth, tile);
            store(*problem, tile, top + strip, std::min(kRows, panel_rows - strip), left, columns, start == 0);
          }
        }
      }
    }
  }
};

Status supported(const OpCall& call) { return gemm_supported(call, kFloat32); }

Matrix matrix(const TensorDesc& tensor, bool is_transposed) {
  const int64_t row = std::max<int64_t>(1, tensor.shape[1]);
  return {static_cast<const float*>(tensor.data), is_transposed ? 1 : row, is_transposed ? row : 1};
}

Status launch(const OpCall& call) {
  const GemmAttrs attrs = attrs_of<GemmAttrs>(call);
  const float* c = attrs.beta == 0 ? nullptr : static_cast<const float*>(call.inputs[2].data);
  const Problem problem{gemm_sizes(call), matrix(call.inputs[0], attrs.ta), matrix(call.inputs[1], attrs.tb), c,
                        static_cast<float*>(call.outputs[0].data), attrs.alpha, attrs.beta};
  run_simd<Multiply>(&problem);
  return {};
}

}  // namespace

std::vector<KernelPtr> gemm_host_kernels() {
  return {make_kernel({OpKind::Gemm, "gemm.f32.host", DeviceType::Host}, {supported, launch, gemm_cost})};
}

}  // namespace npu
