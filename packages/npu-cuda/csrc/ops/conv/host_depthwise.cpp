// Depthwise convolutions on the host: vectors of channels, several pixels at once. Pixels whose taps are all inside of the
// image go without a question; at its border taps outside are left out, so that the image need not be copied.
#include <algorithm>
#include <atomic>

#include "ops/conv/bands.h"
#include "ops/conv/depthwise.h"
#include "ops/host_simd.h"
#include "ops/pointwise/vector_instructions.h"
#include "ops/threads.h"

namespace npu::conv {
namespace {

constexpr int64_t kMostPixels = 256;  // of a band
constexpr int64_t kItem = 1024;       // parallel_for gives threads multiples of as many
constexpr int kAtOnce = 8;            // pixels

// A tap of some pixels: where its number is, from a pixel, and its weights.
struct Tap {
  int64_t offset;
  const float* weights;
};

// Neighbouring pixels of a row, which have the same taps.
struct Pixels {
  const float* x;
  int64_t x_step;
  float* y;
  int64_t y_step;
  int64_t count, channels;
  const Tap* taps;
  int64_t num_taps;
  const float* bias;
};

struct PixelLoop {
  template <int kBytes, int kPixels>
  static NPU_INLINE void some(const Pixels& p, int64_t first, int64_t channel) {
    using V = typename pointwise::VectorOf<float, kBytes>::unaligned;
    using Sum = typename pointwise::VectorOf<float, kBytes>::type;
    const auto load = [&](const float* from) { return Sum(*reinterpret_cast<const V*>(from + channel)); };
    Sum sums[kPixels];
#pragma GCC unroll 8
    for (int i = 0; i < kPixels; ++i) sums[i] = load(p.bias);
    const float* x = p.x + first * p.x_step;
    for (int64_t tap = 0; tap < p.num_taps; ++tap) {
      const Sum weights = load(p.taps[tap].weights);
      const float* from = x + p.taps[tap].offset;
#pragma GCC unroll 8
      for (int i = 0; i < kPixels; ++i) sums[i] += weights * load(from + i * p.x_step);
    }
#pragma GCC unroll 8
    for (int i = 0; i < kPixels; ++i) *reinterpret_cast<V*>(p.y + (first + i) * p.y_step + channel) = sums[i];
  }

  // The channels that vectors of so many bytes cover; returns the first one beyond.
  template <int kBytes>
  static NPU_INLINE int64_t channels(const Pixels& p, int64_t channel) {
    constexpr int64_t lanes = kBytes / sizeof(float);
    for (; channel + lanes <= p.channels; channel += lanes) {
      int64_t first = 0;
      for (; first + kAtOnce <= p.count; first += kAtOnce) some<kBytes, kAtOnce>(p, first, channel);
      for (; first < p.count; ++first) some<kBytes, 1>(p, first, channel);
    }
    return channel;
  }

  template <int kBytes>
  static NPU_INLINE void all(const Pixels& p) {
    int64_t channel = channels<kBytes>(p, 0);
    if constexpr (kBytes > 16) channel = channels<16>(p, channel);
    for (; channel < p.channels; ++channel) {
      for (int64_t pixel = 0; pixel < p.count; ++pixel) {
        float sum = p.bias[channel];
        for (int64_t tap = 0; tap < p.num_taps; ++tap) {
          sum += p.taps[tap].weights[channel] * p.x[pixel * p.x_step + p.taps[tap].offset + channel];
        }
        p.y[pixel * p.y_step + channel] = sum;
      }
    }
  }
};

template <int kBytes>
struct PixelLoopOf {
  static NPU_INLINE void run(const Pixels* pixels) { PixelLoop::all<kBytes>(*pixels); }
};

void run_pixels(const Pixels& pixels) {
#if defined(__x86_64__)
  if (has_avx512()) return run_with_avx512<PixelLoopOf<64>>(&pixels);
  if (has_avx2()) return run_with_avx2<PixelLoopOf<32>>(&pixels);
#endif
  PixelLoopOf<16>::run(&pixels);
}

class Plan {
 public:
  explicit Plan(const OpCall& call) : geometry_(geometry_of_conv(call)), channels_(geometry_.x.channels) {
    for (const Plane& plane : planes_of(geometry_)) {
      const Bands& bands = planes_.emplace_back(bands_of(geometry_, plane, kMostPixels, true));
      most_band_ = std::max(most_band_, bands.copied_elements(channels_));
      most_width_ = std::max(most_width_, bands.width());
    }
  }

  uint64_t workspace_bytes() const {
    return uint64_t(sizeof(float) * (weight_elements() + thread_count() * slice_elements()));
  }

  void run(const OpCall& call) const {
    auto* weights = static_cast<float*>(call.workspace);
    load_weights(call, weights);
    const int64_t slices = (int64_t(call.workspace_bytes / sizeof(float)) - weight_elements()) / slice_elements();
    for (const Bands& bands : planes_) run_plane(call, bands, weights, slices);
  }

 private:
  // The bias, then the weights of each tap.
  int64_t weight_elements() const { return ((1 + geometry_.taps()) * channels_ + 15) / 16 * 16; }
  // Of one thread: taps, the input of a band, and a row of results.
  int64_t slice_elements() const {
    const auto tap_floats = int64_t(sizeof(Tap) / sizeof(float));
    return (geometry_.taps() * tap_floats + most_band_ + most_width_ * channels_ + 15) / 16 * 16;
  }

  void load_weights(const OpCall& call, float* to) const;
  void run_plane(const OpCall& call, const Bands& bands, const float* weights, int64_t slices) const;
  void run_band(const OpCall& call, const Bands& bands, const BandPlace& place, const float* weights, char* slice) const;
  int64_t taps_of(const Bands& bands, const BandPlace& place, int64_t row, int64_t column, const float* weights, Tap* taps) const;

  Geometry geometry_;  // but for addresses
  int64_t channels_;
  std::vector<Bands> planes_;
  int64_t most_band_ = 0, most_width_ = 1;
};

void Plan::load_weights(const OpCall& call, float* to) const {
  const WeightStrides strides = strides_of_weights(geometry_, call.inputs[1]);
  const pointwise::ReadRow read = pointwise::reader(pointwise::element_of(call.inputs[1].dtype), pointwise::kFloat32);
  const int64_t item = item_bytes(call.inputs[1].dtype);
  std::fill(to, to + channels_, 0.0f);
  if (call.num_inputs == 3) read(call.inputs[2].data, call.inputs[2].strides[0], to, channels_);
  for (int64_t tap = 0; tap < geometry_.taps(); ++tap) {
    read(static_cast<const char*>(call.inputs[1].data) + strides.of_tap(geometry_, tap) * item, strides.group,
         to + (1 + tap) * channels_, channels_);
  }
}

void Plan::run_plane(const OpCall& call, const Bands& bands, const float* weights, int64_t slices) const {
  const int64_t items = geometry_.x.batch * bands.depths() * bands.count;
  if (items == 0 || bands.width() == 0 || bands.height() == 0) return;
  std::atomic<int64_t> taken{0};
  const int64_t least = (items + slices - 1) / slices;
  parallel_for(items * kItem, least * kItem, [&](int64_t begin, int64_t end) {
    float* slice = static_cast<float*>(call.workspace) + weight_elements() + taken++ * slice_elements();
    for (int64_t item = begin / kItem; item < end / kItem; ++item) {
      run_band(call, bands, place_of(bands, item), weights, reinterpret_cast<char*>(slice));
    }
  });
}

// The taps of a pixel; those outside of the image are left out, unless it is copied.
int64_t Plan::taps_of(const Bands& bands, const BandPlace& place, int64_t row, int64_t column, const float* weights, Tap* taps) const {
  const Plane::Axis* axes = bands.plane.axes;
  const int64_t at[kAxes] = {place.depth * axes[0].input_step, (place.first_row + row) * axes[1].input_step, column * axes[2].input_step};
  const auto is_read = [&](int axis, const Plane::Tap& tap) {
    const int64_t position = at[axis] + tap.offset;
    return bands.is_copied || (position >= 0 && position < geometry_.x.sizes[axis]);
  };
  int64_t count = 0;
  for (const Plane::Tap& d : axes[0].taps) {
    if (!is_read(0, d)) continue;
    for (const Plane::Tap& h : axes[1].taps) {
      if (!is_read(1, h)) continue;
      for (const Plane::Tap& w : axes[2].taps) {
        if (!is_read(2, w)) continue;
        const int64_t index = (d.index * geometry_.kernel[1] + h.index) * geometry_.kernel[2] + w.index;
        taps[count++] = {bands.strides.at(d.offset - bands.least[0], h.offset - bands.least[1], w.offset - bands.least[2]),
                         weights + (1 + index) * channels_};
      }
    }
  }
  return count;
}

void Plan::run_band(const OpCall& call, const Bands& bands, const BandPlace& place, const float* weights, char* slice) const {
  auto* taps = reinterpret_cast<Tap*>(slice);
  auto* results = reinterpret_cast<float*>(taps + geometry_.taps());
  Image x = geometry_.x;
  x.data = static_cast<char*>(call.inputs[0].data);
  const float* base = load_band(x, bands, place, results + most_width_ * channels_);
  const Image& y = geometry_.y;
  const Plane::Axis* axes = bands.plane.axes;
  const bool is_direct = y.dtype == kFloat32 && y.channel_stride == 1;
  const int64_t item = item_bytes(y.dtype), width = bands.width();
  const int64_t begin = bands.is_copied || bands.plane.is_empty() ? 0 : axes[2].inside_begin();
  const int64_t end = bands.is_copied || bands.plane.is_empty() ? width : axes[2].inside_end(geometry_.x.sizes[2]);
  const pointwise::WriteRow write = pointwise::writer(pointwise::element_of(y.dtype), pointwise::kFloat32);
  for (int64_t row = 0; row < place.rows; ++row) {
    const int64_t offset = place.image * y.batch_stride + (axes[0].first + place.depth * axes[0].step) * y.strides[0] +
                           (axes[1].first + (place.first_row + row) * axes[1].step) * y.strides[1] + axes[2].first * y.strides[2];
    char* const to = static_cast<char*>(call.outputs[0].data) + offset * item;
    const int64_t step = axes[2].step * y.strides[2];
    Pixels pixels{nullptr, bands.strides.at(0, 0, axes[2].input_step), nullptr, is_direct ? step : channels_, 0, channels_, taps, 0, weights};
    const auto run = [&](int64_t column, int64_t count) {
      pixels.num_taps = taps_of(bands, place, row, column, weights, taps);
      pixels.x = base + bands.strides.at(0, row * axes[1].input_step, column * axes[2].input_step);
      pixels.y = is_direct ? reinterpret_cast<float*>(to) + column * step : results + column * channels_;
      pixels.count = count;
      run_pixels(pixels);
    };
    for (int64_t column = 0; column < begin; ++column) run(column, 1);
    if (begin < end) run(begin, end - begin);
    for (int64_t column = end; column < width; ++column) run(column, 1);
    if (is_direct) continue;
    for (int64_t column = 0; column < width; ++column) {
      write(results + column * channels_, to + column * step * item, y.channel_stride, channels_);
    }
  }
}

class DepthwiseKernel final : public Kernel {
 public:
  DepthwiseKernel() : Kernel({.kind = kConv, .id = "conv.depthwise.host", .device = DeviceType::Host, .priority = 5}) {}

  Status supported(const OpCall& call) const override {
    NPU_TRY(check_conv(call));
    return geometry_of_conv(call).is_depthwise() ? Status() : Status::not_implemented("a group is not one input and one output");
  }
  uint64_t workspace_bytes(const OpCall& call) const override { return Plan(call).workspace_bytes(); }
  Cost cost(const OpCall& call) const override { return conv_cost(call); }
  Status prepare(const OpCall& call, void** state) const override { return *state = new Plan(call), Status(); }
  void release(void* state) const noexcept override { delete static_cast<Plan*>(state); }

  Status launch(const OpCall& call) const override {
    if (call.outputs[0].numel == 0) return {};
    if (call.state) return static_cast<const Plan*>(call.state)->run(call), Status();
    return Plan(call).run(call), Status();
  }
};

}  // namespace

KernelPtr depthwise_kernel() { return std::make_shared<DepthwiseKernel>(); }

}  // namespace npu::conv
