// Images of 1, 2 or 3 axes, as convolutions and pools take them, and attributes that have a number for each axis.
#pragma once

#include <string>
#include <vector>

#include "core/op_info.h"

namespace npu::images {

inline constexpr int kAxes = 3;  // depth, height, width; of an image with fewer of them the first ones have size 1

// A tensor of three spatial axes; strides in elements.
struct Image {
  char* data;
  DType dtype;
  int64_t batch, channels, sizes[kAxes];
  int64_t batch_stride, channel_stride, strides[kAxes];
};

// [batch, channels, *sizes] or [channels, *sizes], of so many sizes.
inline Image image_of(const TensorDesc& tensor, int axes) {
  Image image{static_cast<char*>(tensor.data), tensor.dtype, 1, 1, {1, 1, 1}, 0, 0, {0, 0, 0}};
  const int first = tensor.rank - axes;
  if (first == 2) image.batch = tensor.shape[0], image.batch_stride = tensor.strides[0];
  image.channels = tensor.shape[first - 1], image.channel_stride = tensor.strides[first - 1];
  for (int axis = 0; axis < axes; ++axis) {
    image.sizes[kAxes - axes + axis] = tensor.shape[first + axis];
    image.strides[kAxes - axes + axis] = tensor.strides[first + axis];
  }
  return image;
}

// Fields "stride_d", "stride_h" and "stride_w" of a member `stride`.
template <class Attrs, class Number>
void add_fields(const char* name, Number (Attrs::* member)[kAxes], std::vector<AttrField>* fields) {
  static const Attrs defaults;
  for (int axis = 0; axis < kAxes; ++axis) {
    const auto* place = reinterpret_cast<const char*>(&(defaults.*member)[axis]);
    const auto offset = static_cast<uint32_t>(place - reinterpret_cast<const char*>(&defaults));
    fields->push_back({std::string(name) + "_" + "dhw"[axis], struct_code<Number>(), offset, double((defaults.*member)[axis])});
  }
}

// NotImplemented where one of the numbers of an attribute is less.
inline Status expect_at_least(int32_t least, const int32_t (&numbers)[kAxes], const char* what) {
  for (const int32_t number : numbers) {
    if (number < least) return Status::not_implemented(std::string(what) + " is " + std::to_string(number));
  }
  return {};
}

}  // namespace npu::images
