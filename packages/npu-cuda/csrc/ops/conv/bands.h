// Convolutions on the host: how the outputs of a plane are cut into bands, and the input of a band made ready: float32,
// the channels of a pixel side by side, zeros around the image. An image that is so already is read where it is.
#pragma once

#include <algorithm>

#include "ops/conv/conv.h"
#include "ops/pointwise/host_rows.h"

namespace npu::conv {

// Where a pixel and its taps are in memory, in elements.
struct PixelStrides {
  int64_t axes[kAxes];
  int64_t at(int64_t d, int64_t h, int64_t w) const { return d * axes[0] + h * axes[1] + w * axes[2]; }
};

// A plane, and what a band of it reads: `rows` of height, all of the width, at one depth.
struct Bands {
  Plane plane;
  bool is_copied;
  PixelStrides strides;           // of the input as it is read
  int64_t least[kAxes] = {};      // offset of the taps; of a band that is not copied: 0
  int64_t extent[kAxes] = {};     // of the copy of a band
  int64_t rows = 1, count = 0;    // of a band, and bands of a depth

  int64_t depths() const { return plane.axes[0].count; }
  int64_t height() const { return plane.axes[1].count; }
  int64_t width() const { return plane.axes[2].count; }
  int64_t copied_elements(int64_t channels) const {
    return is_copied ? extent[0] * extent[1] * extent[2] * channels : 0;
  }
};

// Items of work that a call has at least where its image can be cut into so many: for threads, however many there are.
inline constexpr int64_t kLeastItems = 8;

// Bands of at most about so many pixels, one row at least. `may_leave`: whether taps outside of the image are skipped,
// so that it need not be copied for its border alone.
Bands bands_of(const Geometry& geometry, const Plane& plane, int64_t most_pixels, bool may_leave);

// A band of an image: its rows from `first_row`.
struct BandPlace {
  int64_t image, depth, first_row;
  int64_t rows;
};

BandPlace place_of(const Bands& bands, int64_t item);

// How many parts the outputs of a band are cut into, of so many units, so that threads, each with a slice, have so many items
// at least. A part reads all of the input of its band.
inline int64_t parts_of_bands(int64_t bands, int64_t units, int64_t slices, int64_t items_of_slice) {
  return slices == 1 ? 1 : std::clamp<int64_t>((items_of_slice * slices + bands - 1) / bands, 1, units);
}

// Where a position of a band is in the result, in elements.
int64_t offset_in(const Image& y, const Bands& bands, const BandPlace& place, int64_t row, int64_t column);

// Returns where position (0, 0) of the band is, at tap offset 0 or at the least one: copied to `memory` if need be.
const float* load_band(const Image& x, const Bands& bands, const BandPlace& place, float* memory);

// Reads channels side by side as float32; `channels` of a pixel at a time.
void copy_pixels(const Image& x, int64_t image, const int64_t* first, const int64_t* extent, float* memory);

}  // namespace npu::conv
