#include "ops/gemm/epilogue.h"
#include "ops/gemm/steps.h"
#include "ops/threads.h"

namespace npu {
namespace {

using namespace gemm;

// An epilogue as steps over the product, [aux,] D[, aux]: kind, inputs, outputs, schema, bytes, and numbers of tensors.
std::vector<uint32_t> payload_of(Epilogue epilogue) {
  constexpr uint32_t relu = 1, relu_bwd = 6, copy = 8, gelu = 105, gelu_bwd = 106;
  switch (epilogue) {
    case BiasRelu: case Relu: return {0, 1, relu, 1, 1, 0, 0, 0, 1};
    case BiasReluAux: return {0, 2, relu, 1, 1, 0, 0, 0, 1, copy, 1, 1, 0, 0, 0, 2};
    case BiasGeluAux: return {0, 2, gelu, 1, 1, 0, 0, 0, 1, copy, 1, 1, 0, 0, 0, 2};
    case DRelu: case DReluBgrad: return {0, 1, relu_bwd, 2, 1, 0, 0, 0, 1, 2};
    case DGeluBgrad: return {0, 1, gelu_bwd, 2, 1, 0, 0, 0, 1, 2};
    default: return {};
  }
}

// The sums of the rows of D, in their order. Without matrices it has no rows.
void sum_rows(const Problem& problem, const TensorDesc& dbias) {
  const int64_t rows = problem.items > 0 ? problem.m : 0;
  constexpr int64_t kColumns = 512;
  const Operand& d = problem.d;
  const auto type = pointwise::class_of(d.element);
  const auto read = pointwise::reader(d.element, type);
  const auto write = pointwise::writer(d.element, type);
  const auto sum_columns = [&](int64_t task) {
    alignas(64) double sums[kColumns] = {}, row_of_d[kColumns];
    const int64_t column = task * kColumns, count = std::min(kColumns, problem.n - column);
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t at = row * d.row + column * d.column;
      read(static_cast<const char*>(d.data) + at * bytes_of(d.element), d.column, row_of_d, count);
      block_loops(d.element).combine({sums, row_of_d, 1, 1, count});
    }
    const int64_t stride = dbias.strides[0];
    write(sums, static_cast<char*>(dbias.data) + column * stride * bytes_of(d.element), stride, count);
  };
  parallel_tasks((problem.n + kColumns - 1) / kColumns, sum_columns);
}

// The Fused call after the product; without steps where there is only a bias.
struct EpilogueSteps {
  EpilogueCall parts;
  OpCall fused;
  TensorDesc inputs[2];
  std::vector<uint32_t> payload;

  explicit EpilogueSteps(const OpCall& call) : parts(call), fused(call), payload(payload_of(parts.epilogue)) {
    inputs[0] = call.outputs[0];
    if (parts.read_aux) inputs[1] = *parts.read_aux;
    fused.num_inputs = parts.read_aux ? 2 : 1;
    fused.num_outputs = parts.written_aux ? 2 : 1;
    fused.inputs = inputs;
    fused.attrs = {0, static_cast<uint32_t>(payload.size() * sizeof(uint32_t)), payload.data()};
  }
  EpilogueSteps(const EpilogueSteps&) = delete;
};

uint64_t workspace_bytes(const OpCall& call) { return Product(EpilogueCall(call).problem(call)).workspace_bytes(); }

Status launch(const OpCall& call) {
  const EpilogueSteps it(call);
  const Problem problem = it.parts.problem(call);
  if (call.outputs[0].numel > 0) {
    Operand bias{};
    if (it.parts.bias) bias = broadcast_operand(*it.parts.bias, call.outputs[0]);
    const Product product(problem);
    if (it.payload.empty()) {
      product.run(call.workspace, bias, {});
    } else {
      Steps steps;
      NPU_TRY(steps.make(it.fused, product.stride()));
      const Steps::Launch launched(steps, it.fused.inputs + 1, it.fused.outputs);
      product.run(call.workspace, bias, launched.finish());
    }
  }
  if (it.parts.dbias) sum_rows(problem, *it.parts.dbias);
  return {};
}

}  // namespace

std::vector<KernelPtr> gemm_epilogue_host_kernels() {
  return {make_kernel({OpKind::GemmEpilogue, "gemm_epilogue.host", DeviceType::Host},
                      {epilogue_supported, launch, gemm_cost, workspace_bytes})};
}

}  // namespace npu
