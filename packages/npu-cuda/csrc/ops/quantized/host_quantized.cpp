// Products by quantized weights on the host. Few rows of A are multiplied by the integers as they are read; for more,
// panels of the weight become numbers in the second cache, for the tiles of ops/gemm.
#include <algorithm>

#include "ops/gemm/host_block.h"
#include "ops/quantized/host_loops.h"
#include "ops/quantized/host_panels.h"
#include "ops/quantized/host_tasks.h"
#include "ops/quantized/quantized.h"
#include "ops/threads.h"

namespace npu::quantized {
namespace {

using gemm::Element;
using gemm::Operand;

constexpr int64_t kFewRows = 12;  // of A: with more, it takes less time to make numbers of the integers once
// Of a part of D; a multiple of the rows of a tile, so that which tile computes an element depends on the shape alone.
constexpr int64_t kPartRows = 144, kDepth = 256;

static_assert(kMostRowsOfPart == kMostVectors);

// ---- few rows ----

// What bytes of packed integers are multiplied by, and their even ones: see Dots.
void split_row(const Problem& problem, int64_t row, float* numbers) {
  const Operand& a = problem.product.a;
  const int64_t start = problem.offset_of_row(a, row), half = problem.product.k / 2;
  float* const even = numbers + half;
  read(a, start + a.column, 2 * a.column, numbers, half);
  read(a, start, 2 * a.column, even, half);
  for (int64_t i = 0; i < half; ++i) {
    numbers[i] *= 1.0f / 16;
    even[i] -= numbers[i];
  }
}

void multiply_few(const Problem& problem, float* workspace) {
  const gemm::Problem& product = problem.product;
  const int64_t k = product.k, rows = problem.rows(), row_bytes = problem.row_bytes();
  Dots all{};
  all.x = workspace;
  all.x_stride = k;
  all.half = k / 2;
  if (problem.is_packed) {
    for (int64_t row = 0; row < rows; ++row) split_row(problem, row, workspace + row * k);
  } else if (is_direct(problem)) {
    all.x = static_cast<const float*>(product.a.data);
    all.x_stride = product.a.row;
  } else {
    for (int64_t row = 0; row < rows; ++row) {
      read(product.a, problem.offset_of_row(product.a, row), product.a.column, workspace + row * k, k);
    }
  }
  all.row_bytes = row_bytes;
  all.groups = problem.groups;
  all.group_bytes = problem.is_packed ? problem.group / 2 : problem.group;
  all.out_stride = kMostRowsOfTask;
  multiply_by_tasks(problem, [&](const Part& part) {
    Dots dots = all;
    dots.x = all.x + part.row * all.x_stride;
    dots.vectors = part.rows;
    dots.integers = problem.integers + part.column * row_bytes;
    dots.scales = problem.scales + part.column * problem.groups;
    dots.rows = part.columns;
    dots.out = part.sums;
    loops(problem.is_packed).dots(dots);
  });
}

// ---- many rows ----

class Panels {
 public:
  Panels(const Problem& problem, const float* rows, int64_t row_stride)
      : problem_(problem), block_(gemm::block_loops(Element::Float32)), rows_(rows), row_stride_(row_stride) {}

  int64_t count() const { return (problem_.product.n + block_.width - 1) / block_.width; }
  void run(int64_t panel, int64_t first_row) const;

 private:
  void unpack(const Columns& columns, int64_t k, int64_t depth, float* numbers) const;

  const Problem& problem_;
  const gemm::BlockLoops& block_;
  const float* rows_;
  int64_t row_stride_;
};

// The numbers of some columns of W^T, from row k on.
void Panels::unpack(const Columns& columns, int64_t k, int64_t depth, float* numbers) const {
  alignas(64) uint32_t words[kMostWidth * kDepth / 4];
  alignas(64) float scales[kMostWidth * (kDepth + 1)];
  const bool is_packed = problem_.is_packed;
  columns.read_words(is_packed ? k / 2 : k, is_packed ? (depth + 1) / 2 : depth, words);
  const int64_t first_group = k / problem_.group, last_group = (k + depth - 1) / problem_.group;
  columns.read_scales(first_group, last_group - first_group + 1, scales);
  loops(is_packed).unpack({words, scales, problem_.group, k % problem_.group, numbers, depth, columns.width});
}

void Panels::run(int64_t panel, int64_t first_row) const {
  alignas(64) float numbers[kMostWidth * kDepth], sums[kMostWidth * kPartRows], bias[kMostWidth] = {};
  const gemm::Problem& product = problem_.product;
  const int64_t width = block_.width, column = panel * width, columns = std::min(width, product.n - column);
  const int64_t rows = std::min(kPartRows, problem_.rows() - first_row);
  if (problem_.bias.data) read(problem_.bias, column * problem_.bias.column, problem_.bias.column, bias, columns);
  gemm::Block block{};
  block.row_stride = row_stride_;
  block.panel = numbers;
  block.panel_stride = block.out_stride = width;
  block.out = sums;
  block.num_rows = rows;
  block.columns = width;
  block.start = bias;
  for (int64_t k = 0; k == 0 || k < product.k; k += kDepth) {
    block.depth = std::min(kDepth, product.k - k);
    block.rows = rows_ + first_row * row_stride_ + k;
    if (block.depth > 0) unpack({problem_, column, columns, width}, k, block.depth, numbers);
    block_.multiply(block);
    block.start = sums;
    block.start_stride = width;
  }
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t offset = problem_.offset_of_row(product.d, first_row + row) + column * product.d.column;
    write(sums + row * width, product.d, offset, columns);
  }
}

void multiply_many(const Problem& problem, float* workspace) {
  const gemm::Problem& product = problem.product;
  const int64_t rows = problem.rows();
  const bool direct = is_direct(problem);
  if (!direct) {
    parallel_tasks((rows + kPartRows - 1) / kPartRows, [&](int64_t task) {
      for (int64_t row = task * kPartRows; row < std::min(rows, (task + 1) * kPartRows); ++row) {
        read(product.a, problem.offset_of_row(product.a, row), product.a.column, workspace + row * product.k, product.k);
      }
    });
  }
  const Panels panels(problem, direct ? static_cast<const float*>(product.a.data) : workspace,
                      direct ? product.a.row : product.k);
  const int64_t parts = (rows + kPartRows - 1) / kPartRows;
  parallel_tasks(panels.count() * parts, [&](int64_t task) { panels.run(task / parts, task % parts * kPartRows); });
}

// ---- the kernel ----

bool has_few(const Problem& problem) { return problem.rows() <= kFewRows; }

uint64_t workspace_bytes(const OpCall& call) {
  const Problem problem = problem_of(call);
  if (is_direct(problem) && !(has_few(problem) && problem.is_packed)) return 0;
  return uint64_t(problem.rows() * problem.product.k) * sizeof(float);
}

Status launch(const OpCall& call) {
  if (call.outputs[0].numel == 0) return {};
  const Problem problem = problem_of(call);
  (has_few(problem) ? multiply_few : multiply_many)(problem, static_cast<float*>(call.workspace));
  return {};
}

}  // namespace

std::vector<KernelPtr> host_kernels() {
  return {make_kernel({kQuantizedGemm, "quantized_gemm.host", DeviceType::Host},
                      {supported, launch, cost, workspace_bytes})};
}

}  // namespace npu::quantized
