#include "ops/rows/row_call.h"

#include <string>

namespace npu::rows {
namespace {

using pointwise::stride_along;

bool is_gradient(const Shape& shape) { return shape.given > 0; }

Status refuse(const Shape& shape, const std::string& why) {
  return Status::not_implemented(std::string(shape.line.name) + ": " + why);
}

// The axes before the last ones: as many rows as means. -1: there is no such division.
int leading_axes(const TensorDesc& x, int64_t rows) {
  int64_t product = 1;
  for (int axis = 0; axis <= x.rank; ++axis) {
    if (product == rows) return axis;
    if (axis < x.rank) product *= x.shape[axis];
  }
  return -1;
}

// The first tensor with a number for each row.
const TensorDesc& first_number(const OpCall& call, const Shape& shape) {
  return is_gradient(shape) ? call.inputs[shape.inputs] : call.outputs[1];
}

Status check_parameters(const OpCall& call, const Shape& shape, const int64_t* sizes, int rank) {
  for (int i = is_gradient(shape) ? 2 : 1; i < shape.inputs; ++i) {
    const TensorDesc& parameter = call.inputs[i];
    if (parameter.rank == rank && std::equal(sizes, sizes + rank, parameter.shape)) continue;
    return refuse(shape,
                  "gamma or beta is " + text_of(parameter) + ", which is not the shape that is normalized");
  }
  if (!is_gradient(shape)) return {};
  for (int i = 1; i < call.num_outputs; ++i) {
    const TensorDesc& sums = call.outputs[i];
    if (sums.numel == 0) continue;
    NPU_TRY(expect_contiguous(sums, "the gradient of gamma or beta"));
    if (sums.rank == rank && std::equal(sizes, sizes + rank, sums.shape)) continue;
    return refuse(shape, "the gradient of gamma or beta is " + text_of(sums) +
                             ", which is not the shape that is normalized");
  }
  return {};
}

Status check_numbers(const OpCall& call, const Shape& shape, int64_t rows) {
  for (int i = 0; i < shape.given + shape.made; ++i) {
    const TensorDesc& numbers = is_gradient(shape) ? call.inputs[shape.inputs + i] : call.outputs[1 + i];
    NPU_TRY(expect_contiguous(numbers, "mean or rstd"));
    if (numbers.numel == rows) continue;
    return refuse(shape,
                  "mean or rstd is " + text_of(numbers) + ", not of " + std::to_string(rows) + " rows");
  }
  return {};
}

Status check_last_axes(const OpCall& call, const Shape& shape) {
  const TensorDesc& x = call.inputs[0];
  const int64_t rows = first_number(call, shape).numel;
  const int leading = leading_axes(x, rows);
  if (leading < 0)
    return refuse(shape, text_of(x) + " has no last axes that leave " + std::to_string(rows) + " rows");
  if (rows > 0 && x.numel == 0) return refuse(shape, "rows of no elements have no mean");
  NPU_TRY(check_numbers(call, shape, rows));
  int rank = x.rank - leading;
  for (int i = is_gradient(shape) ? 2 : 1; i < shape.inputs; ++i) rank = call.inputs[i].rank;
  for (int i = 1; is_gradient(shape) && i < call.num_outputs; ++i) {
    if (call.outputs[i].numel > 0) rank = call.outputs[i].rank;
  }
  int64_t width = 1;  // axes of one element may be normalized or not
  for (int axis = std::max(0, x.rank - rank); axis < x.rank; ++axis) width *= x.shape[axis];
  if (rank > x.rank || (rows > 0 && width != x.numel / rows)) rank = x.rank - leading;
  return check_parameters(call, shape, x.shape + (x.rank - rank), rank);
}

Status check_groups(const OpCall& call, const Shape& shape, int64_t groups) {
  const TensorDesc& x = call.inputs[0];
  if (x.rank < 2) return refuse(shape, "x has rank " + std::to_string(x.rank) + ", less than 2");
  if (groups < 1 || x.shape[1] % groups != 0) {
    return refuse(shape,
                  std::to_string(x.shape[1]) + " channels are not " + std::to_string(groups) + " groups");
  }
  if (x.shape[0] > 0 && x.numel == 0) return refuse(shape, "rows of no elements have no mean");
  NPU_TRY(check_parameters(call, shape, x.shape + 1, 1));
  return check_numbers(call, shape, x.shape[0] * groups);
}

Status check_axis(const OpCall& call, const Shape& shape, int64_t axis) {
  const int rank = std::max(1, call.inputs[0].rank);
  if (axis >= -rank && axis < rank) return {};
  return refuse(shape, "axis is " + std::to_string(axis) + " of " + std::to_string(call.inputs[0].rank));
}

// Adds axes of a RowCall, the innermost first.
class Division {
 public:
  explicit Division(RowCall* call, int operands) : call_(call), operands_(operands) {
    for (Nest* nest : {&call->rows, &call->columns}) {
      nest->operands = operands;
      nest->numel = 1;
    }
  }

  // `stride(tensor)` is that of an operand along the axis.
  template <class F>
  void add(bool is_column, int64_t size, F stride) {
    Nest* nest = is_column ? &call_->columns : &call_->rows;
    int64_t strides[pointwise::kMaxOperands];
    for (int i = 0; i < operands_; ++i) strides[i] = stride(*call_->along[i]);
    nest->numel *= size;
    if (size != 1) pointwise::add_axis(nest, size, strides);
  }

  void finish() {
    const int64_t none[pointwise::kMaxOperands] = {};
    for (Nest* nest : {&call_->rows, &call_->columns}) {
      if (nest->rank == 0) pointwise::add_axis(nest, 1, none);
    }
  }

 private:
  RowCall* call_;
  int operands_;
};

void divide_axes(const Shape& shape, int64_t parameter, int leading, RowCall* made) {
  const TensorDesc& x = *made->along[0];
  Division division(made, made->inputs + 1);
  const int64_t axis_of_rows = parameter < 0 ? parameter + x.rank : parameter;
  for (int axis = x.rank - 1; axis >= 0; --axis) {
    const bool is_column = shape.line.split == Split::OneAxis ? axis == axis_of_rows : axis >= leading;
    division.add(is_column, x.shape[axis],
                 [&](const TensorDesc& each) { return stride_along(each, x, axis); });
  }
  division.finish();
}

// Along the axes of x; gamma and beta have channels alone.
int64_t stride_of_channels(const TensorDesc& tensor, const TensorDesc& x) {
  return tensor.strides[tensor.rank == x.rank ? 1 : 0];
}

int64_t stride_beside_channels(const TensorDesc& tensor, const TensorDesc& x, int axis) {
  return tensor.rank == x.rank ? tensor.strides[axis] : 0;
}

void divide_groups(int64_t groups, RowCall* made) {
  const TensorDesc& x = *made->along[0];
  const int64_t channels = x.shape[1] / groups;
  Division division(made, made->inputs + 1);
  for (int axis = x.rank - 1; axis >= 2; --axis) {
    division.add(true, x.shape[axis],
                 [&](const TensorDesc& each) { return stride_beside_channels(each, x, axis); });
  }
  division.add(true, channels, [&](const TensorDesc& each) { return stride_of_channels(each, x); });
  division.add(false, groups, [&](const TensorDesc& each) { return stride_of_channels(each, x) * channels; });
  division.add(false, x.shape[0], [&](const TensorDesc& each) { return stride_beside_channels(each, x, 0); });
  division.finish();
}

}  // namespace

Status check_floats(const OpCall& call, Class type, int other) {
  Class computed = pointwise::kFloat32;
  for (int i = 0; i < call.num_inputs + call.num_outputs; ++i) {
    const TensorDesc& tensor = pointwise::operand_of(call, i);
    const Element element = pointwise::element_of(tensor.dtype);
    if (i == other) continue;
    if (element > Element::Float64)
      return Status::not_implemented("a tensor is " + name_of(tensor.dtype) + ", not a real float");
    if (element == Element::Float64) computed = pointwise::kFloat64;
  }
  if (computed == type) return {};
  const bool is_double = computed == pointwise::kFloat64;
  return Status::not_implemented(is_double ? "float64 is computed in f64"
                                           : "these dtypes are computed in f32");
}

Status check_rows(const OpCall& call, const Shape& shape, Class type, int64_t parameter) {
  if (call.num_inputs != shape.line.inputs) {
    return refuse(shape, "this kernel takes " + std::to_string(shape.line.inputs) + " inputs");
  }
  NPU_TRY(check_floats(call, type));
  const TensorDesc &x = call.inputs[0], &y = call.outputs[0];
  if (y.numel > 0 || !is_gradient(shape)) NPU_TRY(expect_same_shape(y, x, "the result", "x"));
  if (shape.line.split == Split::OneAxis && shape.inputs == 2)
    NPU_TRY(expect_same_shape(call.inputs[1], x, "y", "dy"));
  if (is_gradient(shape)) NPU_TRY(expect_same_shape(call.inputs[1], x, "dy", "x"));
  switch (shape.line.split) {
    case Split::OneAxis: return check_axis(call, shape, parameter);
    case Split::LastAxes: return check_last_axes(call, shape);
    default: return check_groups(call, shape, parameter);
  }
}

RowCall row_call_of(const OpCall& call, const Shape& shape, int64_t parameter) {
  RowCall made{};
  made.inputs = shape.inputs;
  for (int i = 0; i < shape.inputs; ++i) made.along[i] = &call.inputs[i];
  made.along[shape.inputs] = call.outputs[0].numel > 0 ? &call.outputs[0] : &call.inputs[0];
  for (int i = 0; i < shape.given; ++i) made.numbers[i] = &call.inputs[shape.inputs + i];
  for (int i = 0; i < shape.made; ++i) made.numbers[i] = &call.outputs[1 + i];
  if (shape.line.split == Split::Groups) {
    divide_groups(parameter, &made);
  } else {
    const bool has_rows = shape.line.split == Split::LastAxes;
    divide_axes(shape, parameter,
                has_rows ? leading_axes(call.inputs[0], first_number(call, shape).numel) : 0, &made);
  }
  return made;
}

RowCall channel_call_of(const OpCall& call, int64_t groups) {
  const TensorDesc& x = call.inputs[0];
  RowCall made{};
  made.inputs = 4;
  const TensorDesc* along[] = {&x, &call.inputs[1], &call.inputs[call.num_inputs - 2],
                               &call.inputs[call.num_inputs - 1], &x};
  std::copy(std::begin(along), std::end(along), made.along);
  for (int i = 0; i < 2; ++i)
    made.numbers[i] = call.outputs[1 + i].numel > 0 ? &call.outputs[1 + i] : nullptr;
  const int64_t channels = x.shape[1] / groups;
  const auto is_number = [&](const TensorDesc& each) { return &each == along[2] || &each == along[3]; };
  Division division(&made, 5);
  for (int axis = x.rank - 1; axis >= 2; --axis) {
    division.add(true, x.shape[axis],
                 [&](const TensorDesc& each) { return is_number(each) ? 0 : each.strides[axis]; });
  }
  division.add(true, x.shape[0],
               [&](const TensorDesc& each) { return is_number(each) ? groups : each.strides[0]; });
  division.add(false, channels,
               [&](const TensorDesc& each) { return is_number(each) ? 0 : each.strides[1]; });
  division.add(false, groups,
               [&](const TensorDesc& each) { return is_number(each) ? 1 : each.strides[1] * channels; });
  division.finish();
  return made;
}

}  // namespace npu::rows
