#include "ops/gemm/steps.h"

#include <algorithm>

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
  const TensorDesc& result = fused.outputs[0];
  for (int i = 0; i < count; ++i) operands[i] = broadcast_operand(pointwise::operand_of(fused, i), result);
  rows.m = result.shape[result.rank - 2];
  rows.batch_rank = result.rank - 2;
  std::copy_n(result.shape, rows.batch_rank, rows.batch_shape);
  rows.a = rows.d = operands[fused.num_inputs];
  join_rows(&rows, {operands + 1, size_t(count - 1)});
}

void Steps::run(const void* context, const Problem& problem, const Part& part) {
  const auto& launch = *static_cast<const Launch*>(context);
  const pointwise::HostCall& window = launch.steps->window_;
  alignas(64) uint16_t rounded[Product::kMostNumbers];
  const int64_t bytes = bytes_of(problem.a.element);
  char* product = static_cast<char*>(part.sums);
  if (bytes == 2) {
    const auto write = pointwise::writer(problem.a.element, pointwise::kFloat32);
    for (int64_t row = 0; row < part.rows; ++row) {
      write(static_cast<float*>(part.sums) + row * part.stride, rounded + row * part.stride, 1, part.columns);
    }
    product = reinterpret_cast<char*>(rounded);
  }
  for (int64_t done = 0, rows; done < part.rows; done += rows) {
    const int64_t row = part.item * problem.m + part.row + done, first = row % launch.rows.m;
    rows = std::min(part.rows - done, launch.rows.m - first);
    void* data[pointwise::kMaxOperands] = {product + done * part.stride * bytes};
    for (int i = 1; i < launch.count; ++i) {
      const Operand& operand = launch.operands[i];
      const int64_t start = launch.rows.offset(operand, row / launch.rows.m);
      const int64_t at = start + first * operand.row + part.column * operand.column;
      data[i] = static_cast<char*>(operand.data) + at * window.operands[i].bytes;
    }
    pointwise::run_window(window, data, rows, part.columns);
  }
}

}  // namespace npu::gemm
