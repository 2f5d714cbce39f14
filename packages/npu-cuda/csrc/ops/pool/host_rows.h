// Images on the host as rows of numbers. Where the channels of every image of a call are side by side, a pixel is all of
// them, else a row is of one channel.
#pragma once

#include <vector>

#include "ops/pointwise/host_rows.h"
#include "ops/pool/pool.h"

namespace npu::pool {

template <class Number>
inline constexpr pointwise::Class kClassOf = sizeof(Number) == 4        ? pointwise::kFloat32
                                             : std::is_integral_v<Number> ? pointwise::kInt64
                                                                          : pointwise::kFloat64;

template <class Number>
class ImageRows {
 public:
  // `inner`: numbers of a pixel: 1, or the channels.
  ImageRows(const Image& image, int64_t inner)
      : image_(image), inner_(inner), element_(pointwise::element_of(image.dtype)),
        is_dense_(inner == image.strides[2] || image.sizes[2] == 1),
        is_stored_(is_dense_ && item_bytes(image.dtype) == int64_t{sizeof(Number)}) {}

  int64_t width() const { return image_.sizes[2]; }
  int64_t numbers() const { return image_.sizes[2] * inner_; }

  // Whether the rows of an image, or of one of its channels, follow one another as numbers.
  bool is_one_array() const {
    const int64_t row = numbers(), *strides = image_.strides, *sizes = image_.sizes;
    return is_stored_ && (strides[1] == row || sizes[1] == 1) && (strides[0] == row * sizes[1] || sizes[0] == 1);
  }

  // A row where it is, or read into `buffer`.
  const Number* read(int64_t outer, int64_t depth, int64_t height, Number* buffer) const {
    const char* from = at(outer, depth, height);
    if (is_stored_) return reinterpret_cast<const Number*>(from);
    const pointwise::ReadRow read = pointwise::reader(element_, kClassOf<Number>);
    each_part([&](int64_t offset, int64_t stride, int64_t start, int64_t n) {
      read(from + offset * item_bytes(image_.dtype), stride, buffer + start, n);
    });
    return buffer;
  }

  // Where a row may be written: in place, or in `buffer`, which `write` then takes.
  Number* target(int64_t outer, int64_t depth, int64_t height, Number* buffer) const {
    return is_stored_ ? reinterpret_cast<Number*>(at(outer, depth, height)) : buffer;
  }
  void write(int64_t outer, int64_t depth, int64_t height, const Number* row) const {
    if (is_stored_) return;
    char* to = at(outer, depth, height);
    const pointwise::WriteRow write = pointwise::writer(element_, kClassOf<Number>);
    each_part([&](int64_t offset, int64_t stride, int64_t start, int64_t n) {
      write(row + start, to + offset * item_bytes(image_.dtype), stride, n);
    });
  }

 private:
  char* at(int64_t outer, int64_t depth, int64_t height) const {
    const int64_t planes = inner_ == image_.channels ? 1 : image_.channels;
    const int64_t offset = outer / planes * image_.batch_stride + outer % planes * image_.channel_stride;
    return image_.data + (offset + depth * image_.strides[0] + height * image_.strides[1]) * item_bytes(image_.dtype);
  }

  template <class F>
  void each_part(F f) const {
    if (is_dense_) return f(0, 1, 0, numbers());
    if (inner_ == 1) return f(0, image_.strides[2], 0, width());
    for (int64_t pixel = 0; pixel < width(); ++pixel) f(pixel * image_.strides[2], 1, pixel * inner_, inner_);
  }

  Image image_;
  int64_t inner_;
  pointwise::Element element_;
  bool is_dense_, is_stored_;
};

// What a position along an axis is made of: every `step`th element from `first` on.
struct Run {
  int64_t first, count, step;

  int64_t end() const { return first + count * step; }
  // Returns whether the run, of elements side by side, has this one.
  bool holds(int64_t element) const { return static_cast<uint64_t>(element - first) < static_cast<uint64_t>(count); }
};

template <class Number>
struct Taps {
  std::vector<Run> runs;
  std::vector<Number> weights;  // `most` for each position; none of a maximum
  int64_t most = 0;

  template <class RangeOf>
  Taps(int64_t count, RangeOf range_of) {
    for (int64_t at = 0; at < count; ++at) {
      const Range range = range_of(at);
      const int64_t elements = range.begin < range.end ? (range.end - range.begin + range.step - 1) / range.step : 0;
      runs.push_back({range.begin, elements, range.step});
      most = std::max(most, elements);
    }
  }
  template <class WeightOf>
  void weigh(WeightOf weight_of) {
    weights.resize(runs.size() * static_cast<size_t>(most));
    for (size_t at = 0; at < runs.size(); ++at) {
      Number* weight = weights.data() + at * static_cast<size_t>(most);
      for (int64_t i = runs[at].first; i < runs[at].end(); i += runs[at].step) *weight++ = weight_of(int64_t(at), i);
    }
  }
  const Run& at(int64_t position) const { return runs[static_cast<size_t>(position)]; }
  const Number* weights_of(int64_t at) const { return weights.data() + at * most; }
};

}  // namespace npu::pool
