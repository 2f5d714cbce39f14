// Depthwise convolutions on the host: vectors of channels, several pixels at once. Pixels whose taps are all inside of the
// image go without a question; at its border taps outside are left out, so that the image need not be copied. Rows of
// an image are read again for each row of the kernel, so that all rows of a band are computed for some channels at a time.
#include <algorithm>

#include "ops/conv/bands.h"
#include "ops/conv/depthwise.h"
#include "ops/conv/steps.h"
#include "ops/host_simd.h"
#include "ops/planned_kernel.h"
#include "ops/pointwise/vector_instructions.h"
#include "ops/threads.h"

namespace npu::conv {
namespace {

constexpr int64_t kMostResults = 32768;  // of a band, which the second cache holds until steps have read them
constexpr int64_t kMostInputs = 20480;   // of the rows that a row of results reads, of some channels
constexpr int64_t kLeastChannels = 16, kMostChannels = 64;
constexpr int kAtOnce = 8;               // pixels

// A row of the kernel: where the number of its first tap is, from a pixel, and the weights of that.
struct TapRow {
  int64_t offset;
  const float* weights;
};

// Neighbouring pixels of a row, which have the same taps.
struct Pixels {
  const float* x;
  int64_t x_step;
  float* y;
  int64_t y_step;
  int64_t count, begin, end;  // pixels, and channels
  const TapRow* rows;
  int64_t num_rows;
  int64_t taps, tap_step, first_weights, weight_step;  // of a row
  const float* bias;
  const fusion::RegisterSteps* steps;
};

template <int kBytes>
struct PixelLoop {
  using V = typename pointwise::VectorOf<float, kBytes>::type;
  using Unaligned = typename pointwise::VectorOf<float, kBytes>::unaligned;
  static constexpr int64_t kLanes = kBytes / sizeof(float);

  static NPU_INLINE V load(const float* from) { return V(*reinterpret_cast<const Unaligned*>(from)); }

  // Some taps of a row; pixels are kStep taps apart, so that a number is read once for all the taps that it is under.
  template <int kPixels, int kTaps, int kStep>
  static NPU_INLINE void slide(V* sums, const float* x, int64_t tap_step, const float* weights, int64_t weight_step) {
    V of_tap[kTaps];
#pragma GCC unroll 8
    for (int tap = 0; tap < kTaps; ++tap) of_tap[tap] = load(weights + tap * weight_step);
#pragma GCC unroll 32
    for (int at = 0; at < (kPixels - 1) * kStep + kTaps; ++at) {
      const V numbers = load(x + at * tap_step);
      const int end = at < kTaps ? at + 1 : kTaps;
#pragma GCC unroll 8
      for (int tap = at % kStep; tap < end; tap += kStep) {
        if ((at - tap) / kStep < kPixels) sums[(at - tap) / kStep] += of_tap[tap] * numbers;
      }
    }
  }

  // kStep: 0 where pixels are not 1 or 2 taps apart.
  template <int kPixels, int kStep>
  static NPU_INLINE void some(const Pixels& p, int64_t first, int64_t channel) {
    V sums[kPixels];
#pragma GCC unroll 8
    for (int i = 0; i < kPixels; ++i) sums[i] = load(p.bias + channel);
    for (int64_t row = 0; row < p.num_rows; ++row) {
      const float* x = p.x + first * p.x_step + p.rows[row].offset + channel;
      const float* weights = p.rows[row].weights + p.first_weights + channel;
      int64_t tap = 0;
      if constexpr (kStep > 0) {
        for (; tap + 5 <= p.taps; tap += 5) {
          slide<kPixels, 5, kStep>(sums, x + tap * p.tap_step, p.tap_step, weights + tap * p.weight_step, p.weight_step);
        }
        for (; tap + 3 <= p.taps; tap += 3) {
          slide<kPixels, 3, kStep>(sums, x + tap * p.tap_step, p.tap_step, weights + tap * p.weight_step, p.weight_step);
        }
      }
      for (; tap < p.taps; ++tap) {
        const V of_tap = load(weights + tap * p.weight_step);
        const float* from = x + tap * p.tap_step;
#pragma GCC unroll 8
        for (int i = 0; i < kPixels; ++i) sums[i] += of_tap * load(from + i * p.x_step);
      }
    }
    write<kPixels>(p, p.y + first * p.y_step + channel, p.y_step, sums);
  }

  // Some vectors of channels of one pixel, so that their sums do not wait for one another.
  template <int kVectors>
  static NPU_INLINE void one(const Pixels& p, int64_t pixel, int64_t channel) {
    V sums[kVectors];
#pragma GCC unroll 8
    for (int i = 0; i < kVectors; ++i) sums[i] = load(p.bias + channel + i * kLanes);
    for (int64_t row = 0; row < p.num_rows; ++row) {
      const float* x = p.x + pixel * p.x_step + p.rows[row].offset + channel;
      const float* weights = p.rows[row].weights + p.first_weights + channel;
      for (int64_t tap = 0; tap < p.taps; ++tap, x += p.tap_step, weights += p.weight_step) {
#pragma GCC unroll 8
        for (int i = 0; i < kVectors; ++i) sums[i] += load(weights + i * kLanes) * load(x + i * kLanes);
      }
    }
    write<kVectors>(p, p.y + pixel * p.y_step + channel, kLanes, sums);
  }

  template <int kCount>
  static NPU_INLINE void write(const Pixels& p, float* y, int64_t y_step, V* sums) {
    if (p.steps) finish<kCount>(*p.steps, y, y_step, sums);
#pragma GCC unroll 8
    for (int i = 0; i < kCount; ++i) *reinterpret_cast<Unaligned*>(y + i * y_step) = sums[i];
  }

  template <int kPixels>
  static NPU_INLINE void finish(const fusion::RegisterSteps& steps, const float* y, int64_t y_step, V* sums) {
    if (steps.addend > 0) {
#pragma GCC unroll 8
      for (int i = 0; i < kPixels; ++i) sums[i] += load(steps.addend_of(y + i * y_step));
    }
    steps.activate([&](auto f) {
#pragma GCC unroll 8
      for (int i = 0; i < kPixels; ++i) sums[i] = f(pointwise::Value<V>::of(sums[i])).raw;
    });
  }

  // Some pixels and the channels up to the end, so that lines of memory are read whole. The last vector has some channels of the
  // one before where they are no multiple of its lanes.
  template <int kPixels, int kStep>
  static NPU_INLINE void channels(const Pixels& p, int64_t first) {
    for (int64_t channel = p.begin; channel < p.end; channel += kLanes) {
      some<kPixels, kStep>(p, first, std::min(channel, p.end - kLanes));
    }
  }

  static NPU_INLINE void channels_of_one(const Pixels& p, int64_t pixel) {
    int64_t channel = p.begin;
    for (; channel + 4 * kLanes <= p.end; channel += 4 * kLanes) one<4>(p, pixel, channel);
    for (; channel < p.end; channel += kLanes) one<1>(p, pixel, std::min(channel, p.end - kLanes));
  }

  template <int kStep>
  static NPU_INLINE void row(const Pixels& p) {
    int64_t first = 0;
    for (; first + kAtOnce <= p.count; first += kAtOnce) channels<kAtOnce, kStep>(p, first);
    if (first + 4 <= p.count) channels<4, kStep>(p, first), first += 4;
    for (; first < p.count; ++first) channels_of_one(p, first);
  }

  static NPU_INLINE void vectors(const Pixels& p) {
    if (p.x_step == p.tap_step) row<1>(p);
    else if (p.x_step == 2 * p.tap_step) row<2>(p);
    else row<0>(p);
  }

  static NPU_INLINE void run(const Pixels* pixels) {
    const Pixels& p = *pixels;
    if (p.end >= kLanes) return vectors(p);
    if constexpr (kBytes > 16) {
      if (p.end >= 4) return PixelLoop<16>::vectors(p);
    }
    for (int64_t channel = p.begin; channel < p.end; ++channel) {
      for (int64_t pixel = 0; pixel < p.count; ++pixel) {
        float sum = p.bias[channel];
        for (int64_t row = 0; row < p.num_rows; ++row) {
          const float* x = p.x + pixel * p.x_step + p.rows[row].offset + channel;
          const float* weights = p.rows[row].weights + p.first_weights + channel;
          for (int64_t tap = 0; tap < p.taps; ++tap) sum += weights[tap * p.weight_step] * x[tap * p.tap_step];
        }
        float* const y = p.y + pixel * p.y_step + channel;
        if (p.steps && p.steps->addend > 0) sum += *p.steps->addend_of(y);
        if (p.steps) p.steps->activate([&](auto f) { sum = f(pointwise::Value<float>::of(sum)).raw; });
        *y = sum;
      }
    }
  }
};

void run_pixels(const Pixels& pixels) {
#if defined(__x86_64__)
  if (has_avx512()) return run_with_avx512<PixelLoop<64>>(&pixels);
  if (has_avx2()) return run_with_avx2<PixelLoop<32>>(&pixels);
#endif
  PixelLoop<16>::run(&pixels);
}

// Taps of an axis from one on, which are inside of the image.
struct TapRange {
  int64_t begin, end;
};

TapRange taps_inside(const Plane::Axis& axis, int64_t position, int64_t size) {
  const auto is_inside = [&](const Plane::Tap& tap) {
    const int64_t at = position * axis.input_step + tap.offset;
    return at >= 0 && at < size;
  };
  const auto begin = std::find_if(axis.taps.begin(), axis.taps.end(), is_inside);
  const auto end = std::find_if_not(begin, axis.taps.end(), is_inside);
  return {begin - axis.taps.begin(), end - axis.taps.begin()};
}

class Plan {
 public:
  // `is_packed`: weights are one panel, of float32. `steps`: what follows; may be null.
  Plan(const Geometry& geometry, bool is_packed, bool has_bias, std::shared_ptr<const Steps> steps = nullptr)
      : geometry_(geometry), channels_(std::max<int64_t>(1, geometry.x.channels)), is_packed_(is_packed), has_bias_(has_bias),
        steps_(std::move(steps)) {
    for (const Plane& plane : planes_of(geometry_)) {
      const int64_t pixels = geometry.x.batch * plane.axes[0].count * plane.axes[1].count * plane.axes[2].count;
      const int64_t most = std::min(kMostResults / channels_, pixels / kLeastItems);
      const Bands& bands = planes_.emplace_back(bands_of(geometry_, plane, most, true));
      most_band_ = std::max(most_band_, bands.copied_elements(channels_));
      most_pixels_ = std::max(most_pixels_, bands.rows * bands.width());
    }
  }

  uint64_t workspace_bytes() const {
    return uint64_t(sizeof(float) * (weight_elements() + thread_count() * slice_elements()));
  }

  void run(const OpCall& call) const {
    auto* memory = static_cast<float*>(call.workspace);
    load_weights(call, memory);
    const auto* weights = is_packed_ ? static_cast<const float*>(call.inputs[1].data) : memory + channels_;
    const int64_t slices = (int64_t(call.workspace_bytes / sizeof(float)) - weight_elements()) / slice_elements();
    const Results results(call, geometry_, steps_.get());
    for (const Bands& bands : planes_) run_plane({call, bands, memory, weights, results}, slices);
  }

 private:
  struct Launch {
    const OpCall& call;
    const Bands& bands;
    const float *bias, *weights;  // the weights of each tap
    const Results& results;
  };

  // The bias, then the weights.
  int64_t weight_elements() const { return ((1 + (is_packed_ ? 0 : geometry_.taps())) * channels_ + 15) / 16 * 16; }
  int64_t kernel_rows() const { return geometry_.kernel[0] * geometry_.kernel[1]; }
  // Returns the elements of one thread: the rows of taps of some pixels, the input of a band, and its results.
  int64_t slice_elements() const {
    const auto row_floats = int64_t(sizeof(TapRow) / sizeof(float));
    return (kernel_rows() * row_floats + most_band_ + most_pixels_ * channels_ + 15) / 16 * 16;
  }

  void load_weights(const OpCall& call, float* to) const;
  void run_plane(const Launch& launch, int64_t slices) const;
  void run_band(const Launch& launch, const BandPlace& place, char* slice) const;
  void run_row(const Bands& bands, const Pixels& row) const;
  int64_t tap_rows(const Launch& launch, const BandPlace& place, int64_t row, TapRow* rows) const;

  Geometry geometry_;  // but for addresses
  int64_t channels_;
  bool is_packed_, has_bias_;
  std::shared_ptr<const Steps> steps_;
  std::vector<Bands> planes_;
  int64_t most_band_ = 0, most_pixels_ = 1;
};

void Plan::load_weights(const OpCall& call, float* to) const {
  std::fill(to, to + channels_, 0.0f);
  const pointwise::ReadRow read = pointwise::reader(pointwise::element_of(geometry_.x.dtype), pointwise::kFloat32);
  if (has_bias_) read(call.inputs[2].data, call.inputs[2].strides[0], to, channels_);
  if (is_packed_) return;
  const WeightStrides strides = strides_of_weights(geometry_, call.inputs[1]);
  const int64_t item = item_bytes(call.inputs[1].dtype);
  for (int64_t tap = 0; tap < geometry_.taps(); ++tap) {
    read(static_cast<const char*>(call.inputs[1].data) + strides.of_tap(geometry_, tap) * item, strides.group,
         to + (1 + tap) * channels_, channels_);
  }
}

void Plan::run_plane(const Launch& launch, int64_t slices) const {
  const Bands& bands = launch.bands;
  const int64_t items = geometry_.x.batch * bands.depths() * bands.count;
  if (items == 0 || bands.width() == 0 || bands.height() == 0) return;
  parallel_tasks(items, slices, [&](int64_t item, int slice) {
    float* const memory = static_cast<float*>(launch.call.workspace) + weight_elements() + slice * slice_elements();
    run_band(launch, place_of(bands, item), reinterpret_cast<char*>(memory));
  });
}

// The rows of taps of a row of pixels; those outside of the image are left out, unless it is copied.
int64_t Plan::tap_rows(const Launch& launch, const BandPlace& place, int64_t row, TapRow* rows) const {
  const Bands& bands = launch.bands;
  const Plane::Axis* axes = bands.plane.axes;
  if (bands.plane.is_empty()) return 0;
  const auto inside = [&](int axis, int64_t position) {
    if (bands.is_copied) return TapRange{0, int64_t(axes[axis].taps.size())};
    return taps_inside(axes[axis], position, geometry_.x.sizes[axis]);
  };
  const TapRange depth = inside(0, place.depth), height = inside(1, place.first_row + row);
  const Plane::Tap& first = axes[2].taps[0];
  int64_t count = 0;
  for (int64_t d = depth.begin; d < depth.end; ++d) {
    for (int64_t h = height.begin; h < height.end; ++h) {
      const Plane::Tap &of_depth = axes[0].taps[size_t(d)], &of_height = axes[1].taps[size_t(h)];
      const int64_t index = (of_depth.index * geometry_.kernel[1] + of_height.index) * geometry_.kernel[2] + first.index;
      rows[count++] = {bands.strides.at(of_depth.offset - bands.least[0], of_height.offset - bands.least[1], first.offset - bands.least[2]),
                       launch.weights + index * channels_};
    }
  }
  return count;
}

void Plan::run_band(const Launch& launch, const BandPlace& place, char* slice) const {
  const Bands& bands = launch.bands;
  const Plane::Axis* axes = bands.plane.axes;
  auto* const rows = reinterpret_cast<TapRow*>(slice);
  auto* const results = reinterpret_cast<float*>(rows + kernel_rows());
  Image x = geometry_.x;
  x.data = static_cast<char*>(launch.call.inputs[0].data);
  const float* base = load_band(x, bands, place, results + most_pixels_ * channels_);
  const bool is_direct = launch.results.are_direct();
  const int64_t read = geometry_.kernel[1] * bands.width() * axes[2].input_step;
  const int64_t block = std::clamp(kMostInputs / read / kLeastChannels * kLeastChannels, kLeastChannels, kMostChannels);
  Pixels pixels{};
  pixels.x_step = bands.strides.at(0, 0, axes[2].input_step);
  pixels.y_step = is_direct ? axes[2].step * geometry_.y.strides[2] : channels_;
  pixels.bias = launch.bias;
  pixels.steps = is_direct ? launch.results.in_registers() : nullptr;
  pixels.rows = rows;
  if (axes[2].taps.size() > 1) {
    pixels.tap_step = bands.strides.at(0, 0, axes[2].taps[1].offset - axes[2].taps[0].offset);
    pixels.weight_step = (axes[2].taps[1].index - axes[2].taps[0].index) * channels_;
  }
  for (pixels.begin = 0; pixels.begin < channels_; pixels.begin = pixels.end) {
    pixels.end = std::min(channels_, pixels.begin + block);
    for (int64_t row = 0; row < place.rows; ++row) {
      pixels.num_rows = tap_rows(launch, place, row, rows);
      pixels.x = base + bands.strides.at(0, row * axes[1].input_step, 0);
      pixels.y = results + row * bands.width() * channels_;
      if (is_direct) pixels.y = static_cast<float*>(launch.call.outputs[0].data) + offset_in(geometry_.y, bands, place, row, 0);
      run_row(bands, pixels);
    }
  }
  if (!is_direct) launch.results.write(bands, place, 0, place.rows * bands.width(), 0, channels_, results);
}

void Plan::run_row(const Bands& bands, const Pixels& row) const {
  const Plane::Axis& axis = bands.plane.axes[2];
  const bool is_whole = bands.is_copied || bands.plane.is_empty();
  const int64_t begin = is_whole ? 0 : axis.inside_begin(), end = is_whole ? axis.count : axis.inside_end(geometry_.x.sizes[2]);
  const auto run = [&](int64_t column, int64_t count, TapRange taps) {
    Pixels pixels = row;
    pixels.x += column * row.x_step + taps.begin * row.tap_step;
    pixels.y += column * row.y_step;
    pixels.first_weights = taps.begin * row.weight_step;
    pixels.taps = taps.end - taps.begin;
    pixels.count = count;
    run_pixels(pixels);
  };
  const auto at_border = [&](int64_t column) { run(column, 1, taps_inside(axis, column, geometry_.x.sizes[2])); };
  for (int64_t column = 0; column < begin; ++column) at_border(column);
  if (begin < end) run(begin, end - begin, {0, int64_t(axis.taps.size())});
  for (int64_t column = end; column < axis.count; ++column) at_border(column);
}

Plan plan_of_conv(const OpCall& call) { return {geometry_of_conv(call), false, call.num_inputs > 2}; }

Plan plan_of_packed(const OpCall& call) {
  return {geometry_of_packed(call), true, attrs_of<PackedAttrs>(call).has_bias > 0, steps_of(call)};
}

Status check_depthwise(const OpCall& call) {
  NPU_TRY(check_conv(call));
  return geometry_of_conv(call).is_depthwise() ? Status() : Status::not_implemented("a group is not one input and one output");
}

}  // namespace

std::vector<KernelPtr> depthwise_kernels() {
  using Functions = PlannedKernel<Plan>::Functions;
  return {std::make_shared<PlannedKernel<Plan>>(kConv, "conv.depthwise.host", Functions{check_depthwise, plan_of_conv, conv_cost}, 5),
          std::make_shared<PlannedKernel<Plan>>(kPackedConv, "packed_conv.depthwise.host",
                                                Functions{check_packed_depthwise, plan_of_packed, packed_cost})};
}

}  // namespace npu::conv
