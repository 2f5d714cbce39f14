// Pools over 1, 2 or 3 axes, resampling of images, and the gradients of both. Images are [batch, channels, *sizes] or
// [channels, *sizes], of float32, float16, bfloat16 or float64, of any strides; sums are float32, or float64 of float64.
//
//   MaxPool      x -> y[, places]     places: int64, in the plane of each channel
//   MaxPoolBwd   dy, places -> dx
//   Resample     x -> y               means, nearest elements and linear interpolation; `transposed`: dy -> dx
//
// The largest element of a window is the first one of that value; NaN is the largest, and the last one of them.
// Everything but a maximum is a sum of elements by weights that are a product over the axes (axis.h); so is its
// gradient, by the same weights transposed. Each result is summed in the order of its elements, whatever the number of
// threads.
#pragma once

#include <vector>

#include "ops/images.h"
#include "ops/pool/axis.h"

namespace npu::pool {

inline constexpr OpKind kMaxPool{430}, kMaxPoolBwd{431}, kResample{432};
using images::Image;
using images::image_of;
using images::kAxes;

struct Attrs {
  int32_t axes = 2, mode = 0;
  int32_t kernel[kAxes] = {1, 1, 1}, stride[kAxes] = {1, 1, 1}, padding[kAxes] = {}, dilation[kAxes] = {1, 1, 1};
};

struct ResampleAttrs : Attrs {
  double ratio[kAxes] = {};
  int32_t transposed = 0, counts_padding = 1, divisor = 0;
};

struct Geometry {
  Axis axes[kAxes];  // from the image to the pooled one
};

Geometry geometry_of(const Attrs& attrs, const Image& image, const Image& pooled);
Geometry geometry_of(const ResampleAttrs& attrs, const Image& image, const Image& pooled);

// NotImplemented with the reason where a call is none of these; `is_double`: of float64, else of the other floats.
Status check_max_pool(const OpCall& call, bool is_double);
Status check_max_pool_bwd(const OpCall& call, bool is_double);
Status check_resample(const OpCall& call, bool is_double);
template <Status (*check)(const OpCall&, bool), class Number>
Status supported(const OpCall& call) { return check(call, sizeof(Number) == 8); }

Cost cost(const OpCall& call);

std::vector<OpInfo> infos();
std::vector<KernelPtr> host_kernels();
std::vector<KernelPtr> cuda_kernels();

}  // namespace npu::pool
