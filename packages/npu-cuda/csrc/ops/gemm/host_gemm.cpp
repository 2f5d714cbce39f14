#include "ops/gemm/product.h"

namespace npu {
namespace {

using namespace gemm;

// D = alpha * sums + beta * C.
void combine(const void*, const Problem& problem, const Part& part) {
  constexpr int64_t kMost = 1024;
  alignas(64) double row_of_c[kMost];
  const BlockLoops& loops = block_loops(problem.b.element);
  const Operand& c = problem.c;
  const int64_t number_bytes = problem.b.element == Element::Float64 ? 8 : 4;
  const int64_t start = problem.has_c ? problem.offset(c, part.item) + part.row * c.row + part.column * c.column : 0;
  for (int64_t row = 0; row < part.rows; ++row) {
    Combination it{static_cast<char*>(part.sums) + row * part.stride * number_bytes, nullptr, problem.alpha,
                   problem.beta, part.columns};
    if (problem.has_c) {
      const char* from = static_cast<const char*>(c.data) + (start + row * c.row) * bytes_of(c.element);
      pointwise::reader(c.element, pointwise::class_of(problem.b.element))(from, c.column, row_of_c, part.columns);
      it.c = row_of_c;
    }
    loops.combine(it);
  }
  write_part(problem, part);
}

struct Call {
  Problem problem;
  Operand bias{};

  explicit Call(const OpCall& call) : problem(problem_of(call)) {
    const bool is_column = problem.n == 1 && problem.m > 1;
    if (is_column || (problem.d.row == 1 && problem.d.column != 1 && problem.m > 1)) problem = problem.transposed();
    const bool is_row = problem.c.row == 0 || problem.m == 1;
    if (!problem.has_c || !is_row || problem.alpha != 1 || problem.beta != 1) return;
    bias = problem.c;
    problem.has_c = false;
  }
};

uint64_t workspace_bytes(const OpCall& call) { return Product(Call(call).problem).workspace_bytes(); }

Status launch(const OpCall& call) {
  if (call.outputs[0].numel == 0) return {};
  const Call it(call);
  const bool is_plain = !it.problem.has_c && it.problem.alpha == 1;
  Product(it.problem).run(call.workspace, it.bias, is_plain ? Finish{} : Finish{combine, nullptr});
  return {};
}

}  // namespace

std::vector<KernelPtr> gemm_host_kernels() {
  return {make_kernel({OpKind::Gemm, "gemm.host", DeviceType::Host},
                      {gemm_supported, launch, gemm_cost, workspace_bytes})};
}

}  // namespace npu
