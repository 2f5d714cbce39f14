#include "ops/pool/pool.h"

namespace npu::pool {
namespace {

constexpr DType kInt64{0, 64, 1}, kFloat64{2, 64, 1};
constexpr int64_t kMostElements = int64_t{1} << 31;  // places of a plane have 32 bits in between

template <class A>
std::vector<AttrField> fields() {
  std::vector<AttrField> all{field("axes", &A::axes), field("mode", &A::mode)};
  images::add_fields("kernel", &A::kernel, &all);
  images::add_fields("stride", &A::stride, &all);
  images::add_fields("padding", &A::padding, &all);
  images::add_fields("dilation", &A::dilation, &all);
  return all;
}

std::vector<AttrField> resample_fields() {
  using A = ResampleAttrs;
  std::vector<AttrField> all = fields<A>();
  images::add_fields("ratio", &A::ratio, &all);
  all.insert(all.end(), {field("transposed", &A::transposed), field("counts_padding", &A::counts_padding),
                         field("divisor", &A::divisor)});
  return all;
}

Status check_attrs(const Attrs& attrs, bool is_max) {
  if (attrs.axes < 1 || attrs.axes > kAxes) return Status::not_implemented("axes is " + std::to_string(attrs.axes) + ", not 1, 2 or 3");
  const int modes = is_max ? int(Mode::Adaptive) + 1 : kModes;
  if (attrs.mode < 0 || attrs.mode >= modes) {
    return Status::not_implemented("mode is " + std::to_string(attrs.mode) + ", not from 0 to " + std::to_string(modes - 1));
  }
  for (const auto* numbers : {&attrs.kernel, &attrs.stride, &attrs.dilation}) {
    NPU_TRY(images::expect_at_least(1, *numbers, "a kernel, a stride or a dilation"));
  }
  return images::expect_at_least(0, attrs.padding, "a padding");
}

Status check_images(const Attrs& attrs, const TensorDesc& image, const TensorDesc& pooled, bool is_double) {
  for (const TensorDesc* tensor : {&image, &pooled}) {
    const bool fits = is_double ? tensor->dtype == kFloat64
                                : tensor->dtype == kFloat32 || tensor->dtype == kFloat16 || tensor->dtype == kBFloat16;
    if (!fits) {
      return Status::not_implemented("a tensor is " + name_of(tensor->dtype) + ", not " + (is_double ? "float64" : "a float of 32 or 16 bits"));
    }
  }
  NPU_TRY(expect_dtype(pooled, image.dtype, "the result"));
  const int leading = image.rank - attrs.axes;
  if ((leading != 1 && leading != 2) || pooled.rank != image.rank || !same_numbers(image.shape, pooled.shape, leading)) {
    return Status::not_implemented("the images are " + text_of(image) + " and " + text_of(pooled) + ", not of the same channels and " +
                                   std::to_string(attrs.axes) + " axes");
  }
  const Image x = images::image_of(image, attrs.axes), y = images::image_of(pooled, attrs.axes);
  const Geometry geometry = geometry_of(attrs, x, y);
  int64_t elements = 1;
  for (const Axis& axis : geometry.axes) {
    elements *= axis.size;
    if (axis.size == 0) return Status::not_implemented("the image, " + text_of(image) + ", has no elements");
    if (axis.mode == Mode::Adaptive && (axis.count + 1) * (axis.size + 1) > int64_t{UINT32_MAX}) {
      return Status::not_implemented("an adaptive pool makes " + std::to_string(axis.count) + " of " + std::to_string(axis.size) + ", which is too many");
    }
    // Each window begins in the image or in the padding before it.
    if (axis.mode == Mode::Window && (axis.count - 1) * axis.stride >= axis.size + axis.padding) {
      return Status::not_implemented("an axis of " + std::to_string(axis.size) + " has not " + std::to_string(axis.count) +
                                     " windows by a stride of " + std::to_string(axis.stride));
    }
  }
  return elements < kMostElements ? Status() : Status::not_implemented("a plane has 2^31 elements or more");
}

Status check_places(const TensorDesc& places, const TensorDesc& pooled) {
  NPU_TRY(expect_dtype(places, kInt64, "places"));
  return expect_same_shape(places, pooled, "places", "the result");
}

// As ATen computes it, which does not look at the ratio where sizes are equal, or nearest elements are doubled.
template <class Number>
Number scale_of(const Axis& axis, double ratio) {
  if (axis.mode == Mode::LinearAligned) return axis.count > 1 ? Number(axis.size - 1) / Number(axis.count - 1) : Number(0);
  if (axis.count == axis.size && axis.mode != Mode::NearestExact) return 1;
  if (axis.count == 2 * axis.size && axis.mode == Mode::Nearest) return Number(0.5);
  return ratio > 0 ? Number(ratio) : Number(axis.size) / Number(axis.count);
}

}  // namespace

Geometry geometry_of(const Attrs& a, const Image& image, const Image& pooled) {
  Geometry geometry{};
  for (int axis = 0; axis < kAxes; ++axis) {
    const Mode mode = axis < kAxes - a.axes ? Mode::Window : static_cast<Mode>(a.mode);
    geometry.axes[axis] = {mode, image.sizes[axis], pooled.sizes[axis], a.kernel[axis], a.stride[axis], a.padding[axis],
                           a.dilation[axis], true, 0, 0};
  }
  return geometry;
}

Geometry geometry_of(const ResampleAttrs& a, const Image& image, const Image& pooled) {
  Geometry geometry = geometry_of(static_cast<const Attrs&>(a), image, pooled);
  for (int axis = 0; axis < kAxes; ++axis) {
    Axis& one = geometry.axes[axis];
    one.counts_padding = a.counts_padding != 0;
    one.scale = image.dtype == kFloat64 ? scale_of<double>(one, a.ratio[axis]) : double(scale_of<float>(one, a.ratio[axis]));
    if (a.divisor != 0) one.divisor = axis == kAxes - 1 ? a.divisor : 1;
  }
  return geometry;
}

Status check_max_pool(const OpCall& call, bool is_double) {
  const auto attrs = attrs_of<Attrs>(call);
  NPU_TRY(check_attrs(attrs, true));
  NPU_TRY(check_images(attrs, call.inputs[0], call.outputs[0], is_double));
  return call.num_outputs == 2 ? check_places(call.outputs[1], call.outputs[0]) : Status();
}

Status check_max_pool_bwd(const OpCall& call, bool is_double) {
  const auto attrs = attrs_of<Attrs>(call);
  NPU_TRY(check_attrs(attrs, true));
  NPU_TRY(check_images(attrs, call.outputs[0], call.inputs[0], is_double));
  return check_places(call.inputs[1], call.inputs[0]);
}

Status check_resample(const OpCall& call, bool is_double) {
  const auto attrs = attrs_of<ResampleAttrs>(call);
  NPU_TRY(check_attrs(attrs, false));
  for (const int32_t dilation : attrs.dilation) {
    if (dilation != 1) return Status::not_implemented("a mean has a dilation of " + std::to_string(dilation));
  }
  for (const int32_t flag : {attrs.transposed, attrs.counts_padding}) {
    if (flag != 0 && flag != 1) return Status::not_implemented("a flag is " + std::to_string(flag) + ", not 0 or 1");
  }
  for (const double ratio : attrs.ratio) {
    if (!(ratio >= 0 && ratio < double(kMostElements))) return Status::not_implemented("a ratio is " + std::to_string(ratio));
  }
  const TensorDesc &x = call.inputs[0], &y = call.outputs[0];
  return attrs.transposed ? check_images(attrs, y, x, is_double) : check_images(attrs, x, y, is_double);
}

// An operation for each element that is read.
Cost cost(const OpCall& call) {
  const auto attrs = attrs_of<Attrs>(call);
  const double taps = double(attrs.kernel[0]) * attrs.kernel[1] * attrs.kernel[2];
  return cost_of(call, 2 * taps * double(std::min(call.inputs[0].numel, call.outputs[0].numel)));
}

std::vector<OpInfo> infos() {
  return {{.kind = kMaxPool, .name = "MaxPool", .min_inputs = 1, .max_inputs = 1, .num_outputs = 1, .max_outputs = 2,
           .schema = make_schema<Attrs>("MAXP", fields<Attrs>())},
          {.kind = kMaxPoolBwd, .name = "MaxPoolBwd", .min_inputs = 2, .max_inputs = 2, .num_outputs = 1,
           .schema = make_schema<Attrs>("MXPB", fields<Attrs>())},
          {.kind = kResample, .name = "Resample", .min_inputs = 1, .max_inputs = 1, .num_outputs = 1,
           .schema = make_schema<ResampleAttrs>("RSMP", resample_fields())}};
}

}  // namespace npu::pool
