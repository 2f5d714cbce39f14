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

}  // namespace

DeviceRows device_rows_of(const RowCall& call) {
  DeviceRows rows{};
  rows.rows = device_nest(call.rows);
  rows.columns = device_nest(call.columns);
  rows.count = static_cast<uint32_t>(call.count());
  rows.width = static_cast<uint32_t>(call.width());
  for (int k = 0; k <= call.inputs; ++k) rows.along[k] = operand_of(call.along[k]);
  for (int i = 0; i < 2; ++i) rows.numbers[i] = operand_of(call.numbers[i]);
  return rows;
}

Status check_range(const OpCall& call) {
  for (int i = 0; i < call.num_inputs + call.num_outputs; ++i) {
    const TensorDesc& tensor = pointwise::operand_of(call, i);
    if (span_bytes(tensor) / item_bytes(tensor.dtype) < int64_t{1} << 31) continue;
    return Status::not_implemented("a tensor spans 2^31 elements or more");
  }
  return {};
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

Status clear_sums_of_cuda(const OpCall& call) {
  for (int i = 1; i < call.num_outputs; ++i) {
    const TensorDesc& to = call.outputs[i];
    if (to.numel == 0) continue;
    NPU_TRY(launch(add_chunks<float>, item_shape(to.numel), call.stream, nullptr, 0, to.numel,
                   DeviceOperand{to.data, pointwise::element_of(to.dtype)}));
  }
  return {};
}

}  // namespace npu::rows
