#include "ops/gemm/steps.h"

namespace npu::gemm {

Status Steps::make(const OpCall& fused, int64_t width) {
  NPU_TRY(plan_.make(fused));
  pointwise::Nest nest;
  nest.rank = 2;
  nest.operands = fused.num_inputs + fused.num_outputs;
  for (int i = 0; i < nest.operands; ++i) {
    const Operand operand = broadcast_operand(pointwise::operand_of(fused, i), fused.outputs[0]);
    nest.strides[i][0] = i == 0 ? 1 : operand.column;
    nest.strides[i][1] = i == 0 ? width : operand.row;
  }
  window_ = plan_.over(nest, fused);
  return {};
}

Steps::Launch::Launch(const Steps& given, const OpCall& fused)
    : steps(&given), count(fused.num_inputs + fused.num_outputs) {
  for (int i = 0; i < count; ++i) {
    operands[i] = broadcast_operand(pointwise::operand_of(fused, i), fused.outputs[0]);
  }
}

void Steps::run(const void* context, const Problem& problem, const Part& part) {
  const auto& launch = *static_cast<const Launch*>(context);
  const pointwise::HostCall& window = launch.steps->window_;
  alignas(64) uint16_t rounded[Product::kMostNumbers];
  void* data[pointwise::kMaxOperands];
  data[0] = part.sums;
  if (bytes_of(problem.a.element) == 2) {
    const auto write = pointwise::writer(problem.a.element, pointwise::kFloat32);
    for (int64_t row = 0; row < part.rows; ++row) {
      write(static_cast<float*>(part.sums) + row * part.stride, rounded + row * part.stride, 1, part.columns);
    }
    data[0] = rounded;
  }
  for (int i = 1; i < launch.count; ++i) {
    const Operand& operand = launch.operands[i];
    const int64_t at = problem.offset(operand, part.item) + part.row * operand.row + part.column * operand.column;
    data[i] = static_cast<char*>(operand.data) + at * window.operands[i].bytes;
  }
  pointwise::run_window(window, data, part.rows, part.columns);
}

}  // namespace npu::gemm
