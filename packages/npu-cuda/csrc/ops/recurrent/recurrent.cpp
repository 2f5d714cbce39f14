#include "ops/recurrent/recurrent.h"

#include <initializer_list>

#include "ops/gemm/host_block.h"

namespace npu::recurrent {
namespace {

constexpr int64_t kGates[] = {1, 1, 4, 3};  // by cell

Status expect_shape(const TensorDesc& tensor, std::initializer_list<int64_t> shape, DType dtype, const char* which) {
  NPU_TRY(expect_dtype(tensor, dtype, which));
  if (tensor.rank == int(shape.size()) && same_numbers(tensor.shape, shape.begin(), tensor.rank)) return {};
  std::string wanted;
  for (const int64_t size : shape) wanted += (wanted.empty() ? "" : ", ") + std::to_string(size);
  return Status::not_implemented(std::string(which) + " is " + text_of(tensor) + ", not [" + wanted + "]");
}

Status expect_panels(const TensorDesc& p, int64_t gates, int64_t n, DType dtype) {
  NPU_TRY(expect_dtype(p, dtype, "P"));
  NPU_TRY(expect_contiguous(p, "P"));
  const int64_t width = p.rank == 3 ? p.shape[2] : 0, units = width / gates;
  if (units == 0 || width % gates != 0 || p.shape[1] != n || p.shape[0] != (n + units - 1) / units) {
    return Status::not_implemented("P is " + text_of(p) + ", not the panels of " + std::to_string(gates) + " gates of " +
                                   std::to_string(n) + " outputs");
  }
  const int64_t vector = gemm::block_loops(pointwise::element_of(dtype)).vector;
  if (units % vector == 0 && width <= kMostWidth) return {};
  return Status::not_implemented("P has panels of " + std::to_string(units) + " outputs; this processor takes a multiple of " +
                                 std::to_string(vector) + ", and " + std::to_string(kMostWidth) + " columns at most");
}

}  // namespace

Status supported(const OpCall& call) {
  const auto attrs = attrs_of<Attrs>(call);
  if (attrs.cell < 0 || attrs.cell > int32_t(Cell::Gru)) {
    return Status::not_implemented("there is no cell " + std::to_string(attrs.cell));
  }
  const bool has_c = Cell(attrs.cell) == Cell::Lstm;
  if (call.num_inputs != 3 + has_c + (attrs.has_bias != 0) || call.num_outputs != 2 + has_c) {
    return Status::not_implemented("this cell has " + std::to_string(1 + has_c) + " states, not so many tensors");
  }
  const TensorDesc &x = call.inputs[0], &h0 = call.inputs[2], &y = call.outputs[0];
  NPU_TRY(gemm::expect_float(x, "X"));
  if (x.dtype.bits == 64) return Status::not_implemented("X is float64, not a float of 32 or 16 bits");
  if (y.rank != 3) return Status::not_implemented("Y has rank " + std::to_string(y.rank) + ", not 3");
  const int64_t gates = kGates[attrs.cell], steps = y.shape[0], rows = y.shape[1], n = y.shape[2];
  NPU_TRY(expect_dtype(y, x.dtype, "Y"));
  NPU_TRY(expect_shape(x, {steps, rows, gates * n}, x.dtype, "X"));
  NPU_TRY(expect_panels(call.inputs[1], gates, n, x.dtype));
  NPU_TRY(expect_shape(h0, {rows, n}, x.dtype, "H0"));
  NPU_TRY(expect_shape(call.outputs[1], {rows, n}, x.dtype, "HN"));
  if (has_c) {
    NPU_TRY(expect_shape(call.inputs[3], {rows, n}, x.dtype, "C0"));
    NPU_TRY(expect_shape(call.outputs[2], {rows, n}, x.dtype, "CN"));
  }
  if (!attrs.has_bias) return {};
  const TensorDesc& bias = call.inputs[3 + has_c];
  NPU_TRY(expect_contiguous(bias, "bias"));
  return expect_shape(bias, {call.inputs[1].shape[0], 1, call.inputs[1].shape[2]}, x.dtype, "bias");
}

Problem problem_of(const OpCall& call) {
  const auto attrs = attrs_of<Attrs>(call);
  const TensorDesc &p = call.inputs[1], &y = call.outputs[0];
  Problem problem{};
  problem.cell = Cell(attrs.cell);
  problem.is_reversed = attrs.reverse != 0;
  problem.steps = y.shape[0];
  problem.rows = y.shape[1];
  problem.n = y.shape[2];
  problem.gates = kGates[attrs.cell];
  problem.units = p.shape[2] / problem.gates;
  problem.panels = p.shape[0];
  problem.x = &call.inputs[0];
  problem.y = &y;
  problem.h0 = &call.inputs[2];
  problem.hn = &call.outputs[1];
  const bool has_c = problem.cell == Cell::Lstm;
  if (has_c) {
    problem.c0 = &call.inputs[3];
    problem.cn = &call.outputs[2];
  }
  problem.weights = p.data;
  if (attrs.has_bias) problem.bias = call.inputs[3 + has_c].data;
  problem.element = pointwise::element_of(y.dtype);
  return problem;
}

Cost cost(const OpCall& call) {
  const TensorDesc &x = call.inputs[0], &y = call.outputs[0];
  return cost_of(call, 2.0 * double(x.numel) * double(y.shape[y.rank - 1]));
}

std::vector<OpInfo> infos() {
  return {{.kind = kRecurrent, .name = "Recurrent", .min_inputs = 3, .max_inputs = 5, .num_outputs = 2, .max_outputs = 3,
           .schema = make_schema<Attrs>("RCUR", {field("cell", &Attrs::cell), field("reverse", &Attrs::reverse),
                                                 field("has_bias", &Attrs::has_bias)})}};
}

}  // namespace npu::recurrent
