// Products of rounded rows by quantized weights on the host: rows of A become integers once, before the tasks.
#include "ops/quantized/host_dynamic_loops.h"
#include "ops/quantized/host_tasks.h"

namespace npu::quantized {
namespace {

constexpr int64_t kMostRoundings = 16;  // tasks that round rows, each with memory of its own for a row
constexpr int64_t kNumbers = kMostOfBlock;  // that are read at once

int64_t padded(int64_t bytes) { return (bytes + 63) / 64 * 64; }

// A call, and where rounded rows of A are in its workspace.
struct Rounded {
  Problem problem;
  int64_t block;
  const DynamicLoops* loops = nullptr;
  Layout layout{};
  int64_t scales_at = 0, row_bytes = 0;  // of integers and scales in their order; of a row as it is multiplied

  explicit Rounded(const OpCall& call);

  bool is_arranged() const { return layout.vector > 0; }
  int64_t roundings() const { return std::min(kMostRoundings, problem.rows()); }
  int64_t blocks() const { return problem.group > 0 ? problem.groups * ((problem.group + block - 1) / block) : 0; }
  int64_t in_order_bytes() const {
    return scales_at + padded(4 * (is_arranged() ? problem.row_bytes() / 4 : blocks()));
  }
  uint64_t workspace_bytes() const {
    return uint64_t(problem.rows() * row_bytes + (is_arranged() ? roundings() * in_order_bytes() : 0));
  }
};

// How vectors of so many bytes read a row of W; with no vector, if they do not: an integer of 32 bits is the sum of four
// bytes, which have to be of one block.
Layout layout_of(const Problem& problem, int64_t block, int64_t vector) {
  const int64_t of_byte = problem.is_packed ? 2 : 1, group = problem.group / of_byte;
  const bool has_words = group % 4 == 0 && (block >= problem.group || block % (4 * of_byte) == 0);
  if (vector == 0 || group == 0 || !has_words) return {};
  if (group >= vector) return {vector, 1, problem.groups, group};
  const int64_t groups = vector / group;
  if (vector % group != 0 || (groups != 2 && groups != 4) || problem.row_bytes() < vector) return {};
  return {vector, groups, 1, problem.row_bytes()};
}

Rounded::Rounded(const OpCall& call) : problem(problem_of(call)) {
  block = std::min<int64_t>(attrs_of<DynamicAttrs>(call).block, std::max<int64_t>(1, problem.group));
  const DynamicChoices& choices = dynamic_choices(problem.is_packed);
  for (int i = 0; i < choices.count && !is_arranged(); ++i) {
    loops = &choices.loops[i];
    layout = layout_of(problem, block, loops->vector);
  }
  scales_at = padded(problem.product.k);
  row_bytes = is_arranged() ? layout.steps() * step_bytes(problem.is_packed, layout.vector) : in_order_bytes();
}

// Integers and scales in their order.
void round_row(const Rounded& rounded, int64_t row, char* to) {
  const Problem& problem = rounded.problem;
  const gemm::Operand& a = problem.product.a;
  alignas(64) float numbers[kNumbers];
  const int64_t start = problem.offset_of_row(a, row), at_once = kNumbers / rounded.block * rounded.block;
  const int64_t word = rounded.is_arranged() ? (problem.is_packed ? 8 : 4) : 0;
  auto* integers = reinterpret_cast<int8_t*>(to);
  auto* scales = reinterpret_cast<float*>(to + rounded.scales_at);
  for (int64_t group = 0; group < problem.groups; ++group) {
    for (int64_t at = 0; at < problem.group; at += at_once) {
      const int64_t count = std::min(at_once, problem.group - at), from = start + (group * problem.group + at) * a.column;
      const bool is_float = a.element == gemm::Element::Float32 && a.column == 1;
      if (!is_float) read(a, from, a.column, numbers, count);
      const float* const source = is_float ? static_cast<const float*>(place(a, from)) : numbers;
      rounded.loops->round({source, count, rounded.block, integers, scales, word});
      integers += count;
      scales += word ? count / word : (count + rounded.block - 1) / rounded.block;
    }
  }
}

void round_rows(const Rounded& rounded, char* to, char* in_order) {
  const int64_t rows = rounded.problem.rows(), tasks = rounded.roundings();
  parallel_tasks(tasks, [&](int64_t task) {
    char* const own = in_order + task * rounded.in_order_bytes();
    for (int64_t row = task * rows / tasks; row < (task + 1) * rows / tasks; ++row) {
      char* const made = to + row * rounded.row_bytes;
      round_row(rounded, row, rounded.is_arranged() ? own : made);
      if (!rounded.is_arranged()) continue;
      const auto* scales = reinterpret_cast<const float*>(own + rounded.scales_at);
      rounded.loops->arrange({reinterpret_cast<const int8_t*>(own), scales, rounded.layout, made});
    }
  });
}

void multiply(const Rounded& rounded, const char* x) {
  const Problem& problem = rounded.problem;
  multiply_by_tasks(problem, [&](const Part& part) {
    DynamicDots dots{};
    dots.x = x + part.row * rounded.row_bytes;
    dots.x_stride = rounded.row_bytes;
    dots.scales_at = rounded.scales_at;
    dots.row_bytes = problem.row_bytes();
    dots.integers = problem.integers + part.column * dots.row_bytes;
    dots.scales = problem.scales + part.column * problem.groups;
    dots.groups = problem.groups;
    dots.group = problem.group;
    dots.block = rounded.block;
    dots.layout = rounded.layout;
    dots.out = part.sums;
    dots.out_stride = kMostRowsOfTask;
    dots.vectors = part.rows;
    dots.rows = part.columns;
    rounded.loops->dots(dots);
  });
}

uint64_t workspace_bytes(const OpCall& call) { return Rounded(call).workspace_bytes(); }

Status launch(const OpCall& call) {
  if (call.outputs[0].numel == 0) return {};
  const Rounded rounded(call);
  char* const x = static_cast<char*>(call.workspace);
  round_rows(rounded, x, x + rounded.problem.rows() * rounded.row_bytes);
  multiply(rounded, x);
  return {};
}

}  // namespace

std::vector<KernelPtr> dynamic_host_kernels() {
  return {make_kernel({kDynamicQuantizedGemm, "dynamic_quantized_gemm.host", DeviceType::Host},
                      {dynamic_supported, launch, cost, workspace_bytes})};
}

}  // namespace npu::quantized
