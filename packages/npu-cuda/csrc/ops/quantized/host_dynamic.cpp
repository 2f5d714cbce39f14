// Products of rounded rows by quantized weights on the host: rows of A become integers once, before the tasks.
#include "ops/quantized/host_dynamic_panels.h"
#include "ops/quantized/host_tasks.h"

namespace npu::quantized {
namespace {

constexpr int64_t kMostRoundings = 16;  // tasks that round rows, each with memory of its own for a row

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
  int64_t in_order_bytes() const {
    return scales_at + padded(4 * (is_arranged() ? problem.row_bytes() / 4 : blocks_of_row(problem, block)));
  }
  // Integers and scales in their order.
  RoundedRow row_at(char* to) const {
    return {block, is_arranged() ? (problem.is_packed ? 8 : 4) : 0, reinterpret_cast<int8_t*>(to),
            reinterpret_cast<float*>(to + scales_at)};
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

void round_rows(const Rounded& rounded, char* to, char* in_order) {
  const int64_t rows = rounded.problem.rows(), tasks = rounded.roundings();
  parallel_tasks(tasks, [&](int64_t task) {
    char* const own = in_order + task * rounded.in_order_bytes();
    for (int64_t row = task * rows / tasks; row < (task + 1) * rows / tasks; ++row) {
      char* const made = to + row * rounded.row_bytes;
      round_row(rounded.problem, row, rounded.row_at(rounded.is_arranged() ? own : made), rounded.loops->round);
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

uint64_t workspace_bytes(const OpCall& call) {
  const Rounded rounded(call);
  return has_panels(rounded.problem, rounded.block) ? panels_workspace_bytes(rounded.problem, rounded.block)
                                                    : rounded.workspace_bytes();
}

Status launch(const OpCall& call) {
  if (call.outputs[0].numel == 0) return {};
  const Rounded rounded(call);
  char* const x = static_cast<char*>(call.workspace);
  if (has_panels(rounded.problem, rounded.block)) {
    multiply_panels(rounded.problem, rounded.block, x);
  } else {
    round_rows(rounded, x, x + rounded.problem.rows() * rounded.row_bytes);
    multiply(rounded, x);
  }
  return {};
}

}  // namespace

std::vector<KernelPtr> dynamic_host_kernels() {
  return {make_kernel({kDynamicQuantizedGemm, "dynamic_quantized_gemm.host", DeviceType::Host},
                      {dynamic_supported, launch, cost, workspace_bytes})};
}

}  // namespace npu::quantized
