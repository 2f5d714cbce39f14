#include "ops/rows/cuda_call.cuh"

#include "ops/rows/rows.h"

namespace npu::rows {
namespace {

DeviceNest device_nest(const Nest& nest) {
  DeviceNest made{};
  made.rank = nest.rank;
  for (int axis = 0; axis < nest.rank; ++axis) {
    made.shape[axis] = FastDivision(static_cast<uint32_t>(nest.shape[axis]));
    for (int k = 0; k < nest.operands; ++k)
      made.strides[k][axis] = static_cast<uint32_t>(nest.strides[k][axis]);
  }
  return made;
}

DeviceOperand operand_of(const TensorDesc* tensor) {
  return tensor ? DeviceOperand{tensor->data, pointwise::element_of(tensor->dtype)}
                : DeviceOperand{nullptr, Element::Float32};
}

// Whether the rows of an operand, if they are contiguous, consist of aligned accesses of 16 bytes.
bool is_wide(const RowCall& call, int operand) {
  const TensorDesc& tensor = *call.along[operand];
  const int64_t bytes = item_bytes(tensor.dtype);
  bool is_wide = reinterpret_cast<uintptr_t>(tensor.data) % kVectorBytes == 0;
  for (int axis = 0; axis < call.rows.rank; ++axis)
    is_wide &= call.rows.strides[operand][axis] * bytes % kVectorBytes == 0;
  return is_wide && call.width() * bytes % kVectorBytes == 0;
}

}  // namespace

DeviceRows device_rows_of(const RowCall& call) {
  DeviceRows rows{};
  rows.rows = device_nest(call.rows);
  rows.columns = device_nest(call.columns);
  rows.count = static_cast<uint32_t>(call.count());
  rows.width = static_cast<uint32_t>(call.width());
  rows.is_wide = true;
  for (int k = 0; k <= call.inputs; ++k) {
    rows.along[k] = operand_of(call.along[k]);
    rows.is_wide &= is_wide(call, k);
  }
  for (int i = 0; i < 2; ++i) rows.numbers[i] = operand_of(call.numbers[i]);
  return rows;
}

Status check_plain(const RowCall& call, DType dtype) {
  for (int k = 0; k <= call.inputs; ++k) {
    NPU_TRY(expect_dtype(*call.along[k], dtype, "a tensor"));
    const bool is_row = call.columns.rank == 1 && (call.columns.strides[k][0] == 1 || call.width() == 1);
    if (!is_row) return Status::not_implemented("rows of " + text_of(*call.along[k]) + " are not contiguous");
  }
  if (call.width() <= kBlockWidth) return {};
  return Status::not_implemented("rows of " + std::to_string(call.width()) + " are wider than " +
                                 std::to_string(kBlockWidth));
}

LaunchShape sums_shape(int64_t width) {
  return {dim3(blocks_for(width, kSumColumns).x, 2), dim3(kThreads)};
}

SumResults sum_results_of(const OpCall& call) {
  SumResults results{};
  for (int i = 1; i < call.num_outputs; ++i) {
    if (call.outputs[i].numel > 0) results.of[i - 1] = operand_of(&call.outputs[i]);
  }
  return results;
}

Status clear_sums_of_cuda(const OpCall& call) {
  int64_t width = 0;
  for (int i = 1; i < call.num_outputs; ++i) width = std::max(width, call.outputs[i].numel);
  return launch(add_chunks<float>, sums_shape(width), call.stream, nullptr, 0, width, sum_results_of(call));
}

}  // namespace npu::rows
