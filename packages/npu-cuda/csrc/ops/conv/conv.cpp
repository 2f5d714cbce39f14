#include "ops/conv/steps.h"

#include <algorithm>
#include <array>

#include "ops/floats.h"

namespace npu::conv {
namespace {

Image image_of(const TensorDesc& tensor) { return images::image_of(tensor, tensor.rank - 2); }

using Kernel3 = std::array<int64_t, kAxes>;

Kernel3 kernel_of(const TensorDesc& weights) {
  Kernel3 kernel{1, 1, 1};
  for (int axis = 2; axis < weights.rank; ++axis) kernel[kAxes - weights.rank + axis] = weights.shape[axis];
  return kernel;
}

Geometry geometry_of(const Attrs& attrs, const TensorDesc& x, const Kernel3& kernel, const TensorDesc& y) {
  Geometry g{image_of(x), image_of(y), {}, {}, {}, {}, attrs.groups, attrs.transposed != 0};
  std::copy_n(kernel.begin(), kAxes, g.kernel);
  std::copy_n(attrs.stride, kAxes, g.stride);
  std::copy_n(attrs.padding, kAxes, g.padding);
  std::copy_n(attrs.dilation, kAxes, g.dilation);
  return g;
}

Status check_attrs(const Attrs& attrs) {
  NPU_TRY(images::expect_at_least(1, attrs.stride, "a stride"));
  NPU_TRY(images::expect_at_least(1, attrs.dilation, "a dilation"));
  NPU_TRY(images::expect_at_least(0, attrs.padding, "a padding"));
  if (attrs.groups < 1) return Status::not_implemented("the number of groups is " + std::to_string(attrs.groups));
  if (attrs.transposed == 0 || attrs.transposed == 1) return {};
  return Status::not_implemented("transposed is " + std::to_string(attrs.transposed) + ", not 0 or 1");
}

// The least and the most that the result may have along an axis.
std::pair<int64_t, int64_t> result_sizes(const Geometry& g, int axis) {
  const int64_t reach = g.dilation[axis] * (g.kernel[axis] - 1) + 1, size = g.x.sizes[axis];
  if (!g.is_transposed) {
    const int64_t room = size + 2 * g.padding[axis] - reach;
    const int64_t count = room < 0 ? 0 : room / g.stride[axis] + 1;
    return {count, count};
  }
  const int64_t least = (size - 1) * g.stride[axis] - 2 * g.padding[axis] + reach;
  return {least, least + std::max(g.stride[axis], g.dilation[axis]) - 1};
}

Status check_images(const Attrs& attrs, const TensorDesc& x, const TensorDesc& y) {
  NPU_TRY(check_attrs(attrs));
  if (x.rank < 3 || x.rank > 5) return Status::not_implemented("x has " + std::to_string(x.rank) + " axes, not 3 to 5");
  if (x.dtype != kFloat32 && x.dtype != kFloat16 && x.dtype != kBFloat16) {
    return Status::not_implemented("x is " + name_of(x.dtype) + ", not a float of 32 or 16 bits");
  }
  NPU_TRY(expect_dtype(y, x.dtype, "the result"));
  if (y.rank == x.rank) return {};
  return Status::not_implemented("the result has " + std::to_string(y.rank) + " axes, x has " + std::to_string(x.rank));
}

Status check_sizes(const Geometry& g, int rank) {
  if (g.x.channels % g.groups != 0 || g.y.channels % g.groups != 0 || g.x.channels == 0 || g.y.channels == 0) {
    return Status::not_implemented(std::to_string(g.x.channels) + " and " + std::to_string(g.y.channels) +
                                   " channels are not " + std::to_string(g.groups) + " groups");
  }
  if (g.x.batch != g.y.batch) {
    return Status::not_implemented("x has " + std::to_string(g.x.batch) + " images, the result " +
                                   std::to_string(g.y.batch));
  }
  for (int axis = 0; axis < kAxes; ++axis) {
    if (g.kernel[axis] < 1) return Status::not_implemented("the weights are of no taps");
    const auto [least, most] = result_sizes(g, axis);
    if (g.y.sizes[axis] >= least && g.y.sizes[axis] <= most) continue;
    const int spatial = rank - 2;
    return Status::not_implemented("the result has sizes " + text_of(g.y.sizes + kAxes - spatial, spatial) + ", not " +
                                   std::to_string(least) + " along axis " + std::to_string(axis - kAxes + spatial + 2));
  }
  return {};
}

Status check(const Attrs& attrs, const TensorDesc& x, const TensorDesc& weights, const TensorDesc& y) {
  NPU_TRY(check_images(attrs, x, y));
  NPU_TRY(expect_dtype(weights, x.dtype, "w"));
  if (weights.rank != x.rank) {
    return Status::not_implemented("w has " + std::to_string(weights.rank) + " axes, x has " + std::to_string(x.rank));
  }
  const Geometry g = geometry_of(attrs, x, kernel_of(weights), y);
  NPU_TRY(check_sizes(g, x.rank));
  const int64_t outer = g.is_transposed ? g.x.channels : g.y.channels;
  const int64_t inner = g.is_transposed ? g.group_outputs() : g.group_inputs();
  if (weights.shape[0] == outer && weights.shape[1] == inner) return {};
  return Status::not_implemented("w is " + text_of(weights) + ", not [" + std::to_string(outer) + ", " +
                                 std::to_string(inner) + ", ...]");
}

Status check_bias(const OpCall& call) {
  NPU_TRY(expect_dtype(call.inputs[2], call.inputs[0].dtype, "the bias"));
  if (call.inputs[2].rank == 1 && call.inputs[2].shape[0] == call.outputs[0].shape[1]) return {};
  return Status::not_implemented("the bias is " + text_of(call.inputs[2]) + ", not a number for each of " +
                                 std::to_string(call.outputs[0].shape[1]) + " channels");
}

// Checks the tensors of a packed convolution behind its panels.
Status check_further_tensors(const OpCall& call) {
  const auto attrs = attrs_of<PackedAttrs>(call);
  if (attrs.has_bias > 0 && call.num_inputs < 3) return Status::not_implemented("it has a bias, but only two inputs");
  if (attrs.has_bias > 0) NPU_TRY(check_bias(call));
  if (attrs.steps == 0) {
    const bool has_more = call.num_inputs > (attrs.has_bias ? 3 : 2) || call.num_outputs > 1;
    return has_more ? Status::not_implemented("it has more tensors than a convolution, but no steps") : Status();
  }
  if (attrs.transposed == 0 && call.inputs[0].dtype == kFloat32) return Steps().make(StepsCall(call).call, 1);
  return Status::not_implemented("steps follow convolutions of float32 that are not transposed");
}

Status check_packed(const OpCall& call) {
  NPU_TRY(check_images(attrs_of<PackedAttrs>(call), call.inputs[0], call.outputs[0]));
  NPU_TRY(check_sizes(geometry_of_packed(call), call.inputs[0].rank));
  NPU_TRY(expect_dtype(call.inputs[1], kFloat32, "the panels"));
  NPU_TRY(expect_contiguous(call.inputs[1], "the panels"));
  return check_further_tensors(call);
}

int64_t floor_divide(int64_t a, int64_t b) { return a >= 0 ? a / b : -((b - 1 - a) / b); }

// The taps by which outputs of this remainder read a transposed convolution's input.
Plane::Axis transposed_axis(const Geometry& g, int axis, int64_t remainder) {
  const int64_t stride = g.stride[axis], size = g.y.sizes[axis];
  Plane::Axis plane{remainder, remainder < size ? (size - 1 - remainder) / stride + 1 : 0, stride, 1, {}};
  for (int64_t tap = 0; tap < g.kernel[axis]; ++tap) {
    const int64_t from = remainder + g.padding[axis] - tap * g.dilation[axis];
    if (from % stride == 0) plane.taps.push_back({floor_divide(from, stride), tap});
  }
  return plane;
}

Plane::Axis direct_axis(const Geometry& g, int axis) {
  Plane::Axis plane{0, g.y.sizes[axis], 1, g.stride[axis], {}};
  for (int64_t tap = 0; tap < g.kernel[axis]; ++tap) plane.taps.push_back({tap * g.dilation[axis] - g.padding[axis], tap});
  return plane;
}

template <class A>
std::vector<AttrField> fields() {
  std::vector<AttrField> all;
  images::add_fields("stride", &A::stride, &all);
  images::add_fields("padding", &A::padding, &all);
  images::add_fields("dilation", &A::dilation, &all);
  all.insert(all.end(), {field("groups", &A::groups), field("transposed", &A::transposed)});
  return all;
}

std::vector<AttrField> packed_fields() {
  using A = PackedAttrs;
  std::vector<AttrField> all = fields<A>();
  images::add_fields("kernel", &A::kernel, &all);
  all.insert(all.end(), {field("has_bias", &A::has_bias), field("winograd_tile", &A::winograd_tile),
                         field("temporaries", &A::temporaries), field("steps", &A::steps)});
  return all;
}

}  // namespace

double Geometry::flops() const {
  const Image& small = is_transposed ? x : y;
  const double positions = double(small.sizes[0]) * double(small.sizes[1]) * double(small.sizes[2]);
  return 2.0 * double(x.batch) * positions * double(taps()) * double(x.channels) * double(group_outputs());
}

int64_t WeightStrides::of_tap(const Geometry& g, int64_t index) const {
  const int64_t w = index % g.kernel[2], h = index / g.kernel[2] % g.kernel[1], d = index / g.kernel[2] / g.kernel[1];
  return d * tap[0] + h * tap[1] + w * tap[2];
}

int64_t Plane::Axis::least_offset() const {
  return std::min_element(taps.begin(), taps.end(), [](Tap a, Tap b) { return a.offset < b.offset; })->offset;
}

int64_t Plane::Axis::most_offset() const {
  return std::max_element(taps.begin(), taps.end(), [](Tap a, Tap b) { return a.offset < b.offset; })->offset;
}

int64_t Plane::Axis::inside_begin() const {
  return std::clamp<int64_t>(-floor_divide(least_offset(), input_step), 0, count);
}

int64_t Plane::Axis::inside_end(int64_t size) const {
  return std::clamp<int64_t>(floor_divide(size - 1 - most_offset(), input_step) + 1, inside_begin(), count);
}

std::vector<Plane> planes_of(const Geometry& g) {
  if (!g.is_transposed) return {{{direct_axis(g, 0), direct_axis(g, 1), direct_axis(g, 2)}}};
  // One for each remainder of a position by the stride. A result that is smaller than its stride has not all of them.
  const auto count = [&](int axis) { return std::min(int64_t{g.stride[axis]}, std::max<int64_t>(1, g.y.sizes[axis])); };
  std::vector<Plane> planes;
  for (int64_t d = 0; d < count(0); ++d) {
    for (int64_t h = 0; h < count(1); ++h) {
      for (int64_t w = 0; w < count(2); ++w) {
        planes.push_back({{transposed_axis(g, 0, d), transposed_axis(g, 1, h), transposed_axis(g, 2, w)}});
      }
    }
  }
  return planes;
}

Status check_conv(const OpCall& call) {
  NPU_TRY(check(attrs_of<Attrs>(call), call.inputs[0], call.inputs[1], call.outputs[0]));
  return call.num_inputs < 3 ? Status() : check_bias(call);
}

Status check_weight_gradient(const OpCall& call) {
  return check(attrs_of<Attrs>(call), call.inputs[0], call.outputs[0], call.inputs[1]);
}

Status check_packed_panels(const OpCall& call) {
  NPU_TRY(check_packed(call));
  const TensorDesc& panels = call.inputs[1];
  const Geometry g = geometry_of_packed(call);
  const int64_t width = panels.rank == 4 ? panels.shape[3] : 0, rows = g.taps() * g.group_inputs();
  if (attrs_of<PackedAttrs>(call).winograd_tile != 0) return Status::not_implemented("it is by Winograd's algorithm");
  const bool fits = (width == 16 || width == 32 || width == 64) && panels.shape[0] == g.groups && panels.shape[2] == rows &&
                    panels.shape[1] == (g.group_outputs() + width - 1) / width;
  if (fits) return {};
  return Status::not_implemented("the panels are " + text_of(panels) + ", not those of " + std::to_string(g.groups) +
                                 " matrices of [" + std::to_string(rows) + ", " + std::to_string(g.group_outputs()) + "]");
}

Status check_packed_depthwise(const OpCall& call) {
  NPU_TRY(check_packed(call));
  const TensorDesc& panels = call.inputs[1];
  const Geometry g = geometry_of_packed(call);
  const bool fits = attrs_of<PackedAttrs>(call).winograd_tile == 0 && panels.rank == 4 && panels.shape[0] == 1 &&
                    panels.shape[1] == 1 && panels.shape[2] == g.taps() && panels.shape[3] == g.x.channels;
  return g.is_depthwise() && fits ? Status() : Status::not_implemented("a group is not one input and one output, in one panel");
}

Status check_packed_winograd(const OpCall& call) {
  NPU_TRY(check_packed(call));
  const TensorDesc& panels = call.inputs[1];
  const int64_t tile = attrs_of<PackedAttrs>(call).winograd_tile, points = (tile + 2) * (tile + 2);
  if (tile != 2 && tile != 4) return Status::not_implemented("winograd_tile is " + std::to_string(tile) + ", not 2 or 4");
  const Geometry g = geometry_of_packed(call);
  bool is_plain = !g.is_transposed && g.groups == 1 && g.kernel[0] == 1 && g.x.sizes[0] == 1 && g.padding[0] == 0;
  for (int axis = 1; axis < kAxes; ++axis) is_plain &= g.kernel[axis] == 3 && g.stride[axis] == 1 && g.dilation[axis] == 1;
  if (!is_plain) return Status::not_implemented("Winograd's algorithm is for 3 x 3 taps of stride 1 in one group");
  if (g.x.dtype != kFloat32 || g.x.channel_stride != 1) {
    return Status::not_implemented("x is not of float32 with its channels side by side");
  }
  const bool fits = g.x.channels % 16 == 0 && g.y.channels % 64 == 0 && panels.rank == 4 && panels.shape[0] == 1 &&
                    panels.shape[1] == points * g.y.channels / 64 && panels.shape[2] == g.x.channels && panels.shape[3] == 64;
  if (fits) return {};
  return Status::not_implemented("the panels are " + text_of(panels) + ", not those of " + std::to_string(points) + " matrices of [" +
                                 std::to_string(g.x.channels) + ", " + std::to_string(g.y.channels) + "], multiples of 16 and 64");
}

Geometry geometry_of_conv(const OpCall& call) {
  return geometry_of(attrs_of<Attrs>(call), call.inputs[0], kernel_of(call.inputs[1]), call.outputs[0]);
}

Geometry geometry_of_weight_gradient(const OpCall& call) {
  return geometry_of(attrs_of<Attrs>(call), call.inputs[0], kernel_of(call.outputs[0]), call.inputs[1]);
}

Geometry geometry_of_packed(const OpCall& call) {
  const auto attrs = attrs_of<PackedAttrs>(call);
  return geometry_of(attrs, call.inputs[0], {attrs.kernel[0], attrs.kernel[1], attrs.kernel[2]}, call.outputs[0]);
}

WeightStrides strides_of_weights(const Geometry& g, const TensorDesc& weights) {
  WeightStrides strides{};
  const int outer = g.is_transposed ? 1 : 0;  // the axis of outputs
  strides.output = weights.strides[outer];
  strides.input = weights.strides[1 - outer];
  strides.group = weights.strides[0] * (g.is_transposed ? g.group_inputs() : g.group_outputs());
  for (int axis = 2; axis < weights.rank; ++axis) strides.tap[kAxes - weights.rank + axis] = weights.strides[axis];
  return strides;
}

Cost conv_cost(const OpCall& call) { return cost_of(call, geometry_of_conv(call).flops()); }
Cost packed_cost(const OpCall& call) { return cost_of(call, geometry_of_packed(call).flops()); }
Cost weight_gradient_cost(const OpCall& call) { return cost_of(call, geometry_of_weight_gradient(call).flops()); }

std::vector<OpInfo> infos() {
  AttrSchema packed = make_schema<PackedAttrs>("CNVP", packed_fields());
  packed.is_open = true;
  return {{.kind = kConv, .name = "Conv", .min_inputs = 2, .max_inputs = 3, .num_outputs = 1,
           .schema = make_schema<Attrs>("CONV", fields<Attrs>())},
          {.kind = kWeightGradient, .name = "ConvWeightGradient", .min_inputs = 2, .max_inputs = 2, .num_outputs = 1,
           .schema = make_schema<Attrs>("CNVW", fields<Attrs>())},
          {.kind = kPackedConv, .name = "PackedConv", .min_inputs = 2, .max_inputs = pointwise::kMaxOperands,
           .num_outputs = 1, .max_outputs = kMaxOutputs, .schema = std::move(packed)}};
}

}  // namespace npu::conv
