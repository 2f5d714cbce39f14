#include "ops/conv/bands.h"

#include <algorithm>
#include <cstring>

namespace npu::conv {
namespace {

// Channels are side by side: pixels are read one by one, or a row of them at once.
void copy_channels(const Image& x, const char* from, int64_t pixels, pointwise::ReadRow read, float* to) {
  const bool is_one_row = x.channel_stride == 1 && x.strides[2] == x.channels;
  if (is_one_row) return read(from, 1, to, pixels * x.channels);
  const int64_t step = x.strides[2] * item_bytes(x.dtype);
  for (int64_t pixel = 0; pixel < pixels; ++pixel) read(from + pixel * step, 1, to + pixel * x.channels, x.channels);
}

// Each channel is read along the row, and spread over the pixels.
void spread_channels(const Image& x, const char* from, int64_t pixels, pointwise::ReadRow read, float* to) {
  constexpr int64_t block = 256;
  float numbers[block];
  const int64_t item = item_bytes(x.dtype);
  for (int64_t start = 0; start < pixels; start += block) {
    const int64_t count = std::min(block, pixels - start);
    for (int64_t channel = 0; channel < x.channels; ++channel) {
      read(from + (start * x.strides[2] + channel * x.channel_stride) * item, x.strides[2], numbers, count);
      float* place = to + start * x.channels + channel;
      for (int64_t i = 0; i < count; ++i) place[i * x.channels] = numbers[i];
    }
  }
}

}  // namespace

Bands bands_of(const Geometry& g, const Plane& plane, int64_t most_pixels, bool may_leave) {
  Bands bands{plane, false, {{g.x.strides[0], g.x.strides[1], g.x.strides[2]}}};
  const int64_t width = std::max<int64_t>(1, bands.width()), height = std::max<int64_t>(1, bands.height());
  bands.rows = std::clamp<int64_t>(most_pixels / width, 1, height);
  bands.count = (height + bands.rows - 1) / bands.rows;
  if (plane.is_empty()) return bands;
  const bool is_readable = g.x.dtype == kFloat32 && (g.x.channel_stride == 1 || g.x.channels == 1);
  bool is_inside = true;
  for (int axis = 0; axis < kAxes; ++axis) {
    const Plane::Axis& one = plane.axes[axis];
    const int64_t last = (one.count - 1) * one.input_step + one.most_offset();
    is_inside = is_inside && one.least_offset() >= 0 && last < g.x.sizes[axis];
  }
  bands.is_copied = !is_readable || !(is_inside || may_leave);
  if (!bands.is_copied) return bands;
  const int64_t positions[kAxes] = {1, bands.rows, width};
  for (int axis = 0; axis < kAxes; ++axis) {
    const Plane::Axis& one = plane.axes[axis];
    bands.least[axis] = one.least_offset();
    bands.extent[axis] = (positions[axis] - 1) * one.input_step + one.most_offset() - one.least_offset() + 1;
  }
  bands.strides = {{bands.extent[1] * bands.extent[2] * g.x.channels, bands.extent[2] * g.x.channels, g.x.channels}};
  return bands;
}

BandPlace place_of(const Bands& bands, int64_t item) {
  const int64_t first = item % bands.count * bands.rows;
  return {item / bands.count / bands.depths(), item / bands.count % bands.depths(), first,
          std::min(bands.rows, bands.height() - first)};
}

int64_t offset_in(const Image& y, const Bands& bands, const BandPlace& place, int64_t row, int64_t column) {
  const Plane::Axis* axes = bands.plane.axes;
  return place.image * y.batch_stride + (axes[0].first + place.depth * axes[0].step) * y.strides[0] +
         (axes[1].first + (place.first_row + row) * axes[1].step) * y.strides[1] +
         (axes[2].first + column * axes[2].step) * y.strides[2];
}

const float* load_band(const Image& x, const Bands& bands, const BandPlace& place, float* memory) {
  const Plane::Axis* axes = bands.plane.axes;
  const int64_t depth = place.depth * axes[0].input_step, row = place.first_row * axes[1].input_step;
  if (!bands.is_copied) {
    const int64_t offset = place.image * x.batch_stride + bands.strides.at(depth, row, 0);
    return reinterpret_cast<const float*>(x.data) + offset;
  }
  const int64_t first[kAxes] = {depth + bands.least[0], row + bands.least[1], bands.least[2]};
  copy_pixels(x, place.image, first, bands.extent, memory);
  return memory;
}

void copy_pixels(const Image& x, int64_t image, const int64_t* first, const int64_t* extent, float* memory) {
  const pointwise::ReadRow read = pointwise::reader(pointwise::element_of(x.dtype), pointwise::kFloat32);
  const int64_t left = std::clamp<int64_t>(-first[2], 0, extent[2]);
  const int64_t right = std::clamp<int64_t>(x.sizes[2] - first[2], left, extent[2]);
  for (int64_t d = first[0]; d < first[0] + extent[0]; ++d) {
    for (int64_t h = first[1]; h < first[1] + extent[1]; ++h, memory += extent[2] * x.channels) {
      const bool is_outside = d < 0 || d >= x.sizes[0] || h < 0 || h >= x.sizes[1];
      const int64_t begin = is_outside ? extent[2] : left, end = is_outside ? extent[2] : right;
      std::fill(memory, memory + begin * x.channels, 0.0f);
      std::fill(memory + end * x.channels, memory + extent[2] * x.channels, 0.0f);
      if (begin == end) continue;
      const int64_t offset = image * x.batch_stride + d * x.strides[0] + h * x.strides[1] + (first[2] + begin) * x.strides[2];
      const char* from = x.data + offset * item_bytes(x.dtype);
      (x.channel_stride == 1 ? copy_channels : spread_channels)(x, from, end - begin, read, memory + begin * x.channels);
    }
  }
}

}  // namespace npu::conv
