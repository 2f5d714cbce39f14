#include "ops/gemm/steps.h"

#include <algorithm>

namespace npu::gemm {

Status Steps::make(const OpCall& fused, int64_t width) {
  NPU_TRY(plan_.make(fused));
  const TensorDesc& result = fused.outputs[0];
  inputs_ = fused.num_inputs;
  count_ = fused.num_inputs + fused.num_outputs;
  pointwise::Nest nest;
  nest.rank = 2;
  nest.operands = count_;
  for (int i = 0; i < count_; ++i) {
    operands_[i] = broadcast_operand(pointwise::operand_of(fused, i), result);
    nest.strides[i][0] = i == 0 ? 1 : operands_[i].column;
    nest.strides[i][1] = i == 0 ? width : operands_[i].row;
  }
  window_ = plan_.over(nest, fused);
  rows_.m = result.shape[result.rank - 2];
  rows_.batch_rank = result.rank - 2;
  std::copy_n(result.shape, rows_.batch_rank, rows_.batch_shape);
  rows_.a = rows_.d = operands_[inputs_];
  join_rows(&rows_, {operands_ + 1, size_t(count_ - 1)});
  return {};
}

Steps::Launch::Launch(const Steps& given, const TensorDesc* inputs, const TensorDesc* outputs) : steps(&given) {
  for (int i = 1; i < given.count_; ++i) data[i] = (i < given.inputs_ ? inputs[i - 1] : outputs[i - given.inputs_]).data;
}

void Steps::run(const void* context, const Problem& problem, const Part& part) {
  const auto& launch = *static_cast<const Launch*>(context);
  const Steps& steps = *launch.steps;
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
    const int64_t row = part.item * problem.m + part.row + done, first = row % steps.rows_.m;
    rows = std::min(part.rows - done, steps.rows_.m - first);
    void* data[pointwise::kMaxOperands] = {product + done * part.stride * bytes};
    for (int i = 1; i < steps.count_; ++i) {
      const Operand& operand = steps.operands_[i];
      const int64_t start = steps.rows_.offset(operand, row / steps.rows_.m);
      const int64_t at = start + first * operand.row + part.column * operand.column;
      data[i] = static_cast<char*>(launch.data[i]) + at * steps.window_.operands[i].bytes;
    }
    pointwise::run_window(steps.window_, data, rows, part.columns);
  }
}

}  // namespace npu::gemm
