// Convolutions over 1, 2 or 3 axes, in groups, and their gradients. Images are [batch, channels, *sizes], weights
// [outputs, inputs / groups, *kernel], or where it is transposed [inputs, outputs / groups, *kernel]; the bias is
// [outputs]. f32, f16 and bf16, all of one dtype and of any strides; sums are f32.
//
//   Conv               x, w[, bias] -> y         of y its shape says which output padding a transposed one has
//   ConvWeightGradient x, dy -> dw
//   PackedConv         x, panels[, bias], tensors of steps -> y, or the results of steps
//
// They run on the host: on CUDA convolutions are left to PyTorch. Panels are the weights as matrices of [taps * inputs,
// outputs], one for each group, of which panel i has the columns from i * width on, and 0 beyond the last one: [groups,
// panels, taps * inputs, width], of float32 whatever x is; a width is 16, 32 or 64. Where a group is one input and one
// output (depthwise) they may be one panel as well, of all groups: [1, 1, taps, groups]. By Winograd's algorithm there
// are panels of each point, of transformed weights: [1, (tile + 2)^2 * outputs / 64, inputs, 64].
//
// The gradient of x is a Conv of dy by the same weights and attributes, but for `transposed`, which is the other one.
#pragma once

#include <vector>

#include "ops/images.h"

namespace npu::conv {

inline constexpr OpKind kConv{370}, kWeightGradient{371}, kPackedConv{372};
using images::Image;
using images::kAxes;

struct Attrs {
  int32_t stride[kAxes] = {1, 1, 1}, padding[kAxes] = {}, dilation[kAxes] = {1, 1, 1};
  int32_t groups = 1;
  int32_t transposed = 0;
};

struct PackedAttrs : Attrs {
  int32_t kernel[kAxes] = {1, 1, 1};
  uint32_t has_bias = 0;
  int32_t winograd_tile = 0;  // 2 or 4: by Winograd's algorithm, in squares of so many pixels
  uint32_t temporaries = 0, steps = 0;  // of a Fused op, whose payload follows; its first input is the convolution
};

struct Geometry {
  Image x, y;  // of the convolution that computes y: of a weight gradient, y is dy
  int64_t kernel[kAxes], stride[kAxes], padding[kAxes], dilation[kAxes];
  int64_t groups;
  bool is_transposed;

  int64_t taps() const { return kernel[0] * kernel[1] * kernel[2]; }
  int64_t group_inputs() const { return x.channels / groups; }
  int64_t group_outputs() const { return y.channels / groups; }
  bool is_depthwise() const { return groups > 1 && x.channels == groups && y.channels == groups; }
  // A multiplication and an addition are two.
  double flops() const;
};

// Weights by group, tap, input and output, in elements.
struct WeightStrides {
  int64_t group, tap[kAxes], input, output;
  int64_t of_tap(const Geometry& geometry, int64_t tap) const;
};

// Output positions that read the input by the same taps. Along an axis, position j of a plane is first + j * step of
// the output, and reads by a tap the input at j * input_step + offset. All outputs are one plane, those of a transposed
// convolution one for each remainder by its strides.
struct Plane {
  struct Tap {
    int64_t offset, index;  // index: in the kernel
  };
  struct Axis {
    int64_t first, count, step, input_step;
    std::vector<Tap> taps;
    int64_t least_offset() const;
    int64_t most_offset() const;
    // The range of positions whose taps are all inside an input of this size; empty as begin == end.
    int64_t inside_begin() const;
    int64_t inside_end(int64_t size) const;
  };
  Axis axes[kAxes];

  bool is_empty() const { return axes[0].taps.empty() || axes[1].taps.empty() || axes[2].taps.empty(); }
};

std::vector<Plane> planes_of(const Geometry& geometry);

// NotImplemented with the reason where a call is none of a convolution.
Status check_conv(const OpCall& call);
Status check_weight_gradient(const OpCall& call);
Status check_packed_panels(const OpCall& call);
Status check_packed_depthwise(const OpCall& call);
Status check_packed_winograd(const OpCall& call);
Geometry geometry_of_conv(const OpCall& call);
Geometry geometry_of_weight_gradient(const OpCall& call);
Geometry geometry_of_packed(const OpCall& call);
WeightStrides strides_of_weights(const Geometry& geometry, const TensorDesc& weights);
Cost conv_cost(const OpCall& call);
Cost weight_gradient_cost(const OpCall& call);
Cost packed_cost(const OpCall& call);

std::vector<OpInfo> infos();
std::vector<KernelPtr> host_kernels();

}  // namespace npu::conv
