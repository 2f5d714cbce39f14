#include "ops/quantized/host_dynamic_panels.h"

#include "ops/quantized/host_panels.h"
#include "ops/quantized/host_tasks.h"

namespace npu::quantized {
namespace {

// Of a part of D, a multiple of the rows of a tile; and the integers of a panel, which are those of a block at least.
constexpr int64_t kPartRows = 144, kDepth = 512, kMostDepth = kMostOfBlock;
constexpr int64_t kLeastGroup = 4;

static_assert(kMostDepth <= kMostBytes);

// Part of a row of A and of rows of W: some groups, or some blocks of one.
struct Piece {
  int64_t k, depth, groups, group, first_group, first_block;
};

// A call, and where its rounded rows are: integers, scales and starts of blocks.
class Panels {
 public:
  Panels(const Problem& problem, int64_t block)
      : problem_(problem), loops_(panel_loops(problem.is_packed)), block_(block), scales_at_(padded(problem.product.k)),
        starts_at_(scales_at_ + 4 * blocks_of_row(problem, block)),
        stride_(padded(starts_at_ + 4 * blocks_of_row(problem, block))) {}

  uint64_t workspace_bytes() const { return uint64_t(problem_.rows() * stride_); }
  void round(int64_t row, char* to) const;
  int64_t tasks() const { return panels() * parts(); }
  void run(int64_t task, const char* x) const;

 private:
  int64_t panels() const { return (problem_.product.n + loops_.width - 1) / loops_.width; }
  int64_t parts() const { return (problem_.rows() + kPartRows - 1) / kPartRows; }
  Piece piece_at(int64_t k) const;
  void multiply(const Columns& columns, const Piece& piece, PanelDots dots) const;

  const Problem& problem_;
  const PanelLoops& loops_;
  int64_t block_, scales_at_, starts_at_, stride_;
};

void Panels::round(int64_t row, char* to) const {
  auto* const integers = reinterpret_cast<int8_t*>(to);
  auto* const starts = reinterpret_cast<int32_t*>(to + starts_at_);
  round_row(problem_, row, {block_, 0, integers, reinterpret_cast<float*>(to + scales_at_)},
            dynamic_choices(problem_.is_packed).loops[0].round);
  const int64_t blocks = blocks_of_row(problem_, block_) / problem_.groups;
  for (int64_t group = 0; group < problem_.groups; ++group) {
    loops_.order(integers + group * problem_.group, problem_.group, block_, starts + group * blocks);
  }
}

Piece Panels::piece_at(int64_t k) const {
  const int64_t group = problem_.group, of_group = k % group, first = k / group;
  const int64_t first_block = first * ((group + block_ - 1) / block_) + of_group / block_;
  if (group <= kDepth) {
    const int64_t groups = std::min(problem_.groups - first, kDepth / group);
    return {k, groups * group, groups, group, first, first_block};
  }
  const int64_t depth = std::min(group - of_group, std::max(block_, kDepth / block_ * block_));
  return {k, depth, 1, depth, first, first_block};
}

void Panels::multiply(const Columns& columns, const Piece& piece, PanelDots dots) const {
  alignas(64) uint32_t words[kMostWidth * kMostDepth / 4];
  alignas(64) char panel[kMostWidth * kMostDepth];
  alignas(64) float scales[kMostWidth * kDepth / kLeastGroup];
  const int64_t of_byte = problem_.is_packed ? 2 : 1, bytes = piece.depth / of_byte;
  columns.read_words(piece.k / of_byte, bytes, words);
  loops_.fill(words, bytes / 4 * columns.width, panel);
  columns.read_scales(piece.first_group, piece.groups, scales);
  dots.x += piece.k;
  dots.x_scales += 4 * piece.first_block;
  dots.starts += 4 * piece.first_block;
  dots.panel = panel;
  dots.scales = scales;
  dots.groups = piece.groups;
  dots.group = piece.group;
  loops_.dots(dots);
}

void Panels::run(int64_t task, const char* x) const {
  alignas(64) float sums[kMostWidth * kPartRows], bias[kMostWidth] = {};
  const gemm::Problem& product = problem_.product;
  const int64_t width = loops_.width, column = task / parts() * width, first_row = task % parts() * kPartRows;
  const int64_t columns = std::min(width, product.n - column), rows = std::min(kPartRows, problem_.rows() - first_row);
  if (problem_.bias.data) read(problem_.bias, column * problem_.bias.column, problem_.bias.column, bias, columns);
  for (int64_t row = 0; row < rows; ++row) std::copy_n(bias, width, sums + row * width);
  PanelDots dots{};
  dots.x = x + first_row * stride_;
  dots.x_scales = dots.x + scales_at_;
  dots.starts = dots.x + starts_at_;
  dots.x_stride = stride_;
  dots.block = block_;
  dots.out = sums;
  dots.rows = rows;
  for (int64_t k = 0; k < product.k;) {
    const Piece piece = piece_at(k);
    multiply({problem_, column, columns, width}, piece, dots);
    k += piece.depth;
  }
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t offset = problem_.offset_of_row(product.d, first_row + row) + column * product.d.column;
    write(sums + row * width, product.d, offset, columns);
  }
}

}  // namespace

// Words of integers have to be of one block.
bool has_panels(const Problem& problem, int64_t block) {
  const int64_t word = problem.is_packed ? 8 : 4;
  const bool has_words = problem.group > 0 && problem.group % word == 0 && (block >= problem.group || block % word == 0);
  return has_words && problem.rows() >= panel_loops(problem.is_packed).least_rows;
}

uint64_t panels_workspace_bytes(const Problem& problem, int64_t block) { return Panels(problem, block).workspace_bytes(); }

void multiply_panels(const Problem& problem, int64_t block, char* workspace) {
  const Panels panels(problem, block);
  const int64_t rows = problem.rows(), stride = int64_t(panels.workspace_bytes()) / rows;
  parallel_items(rows, 8, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) panels.round(row, workspace + row * stride);
  });
  parallel_tasks(panels.tasks(), [&](int64_t task) { panels.run(task, workspace); });
}

void round_row(const Problem& problem, int64_t row, RoundedRow to, void (*round)(const Rounding&)) {
  const gemm::Operand& a = problem.product.a;
  alignas(64) float numbers[kMostOfBlock];
  const int64_t start = problem.offset_of_row(a, row), at_once = kMostOfBlock / to.block * to.block;
  for (int64_t group = 0; group < problem.groups; ++group) {
    for (int64_t at = 0; at < problem.group; at += at_once) {
      const int64_t count = std::min(at_once, problem.group - at), from = start + (group * problem.group + at) * a.column;
      const bool is_float = a.element == gemm::Element::Float32 && a.column == 1;
      if (!is_float) read(a, from, a.column, numbers, count);
      const float* const source = is_float ? static_cast<const float*>(place(a, from)) : numbers;
      round({source, count, to.block, to.integers, to.scales, to.word});
      to.integers += count;
      to.scales += to.word ? count / to.word : (count + to.block - 1) / to.block;
    }
  }
}

}  // namespace npu::quantized
