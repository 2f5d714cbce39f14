// Gradients of weights on the host: for each tap the product of two matrices, inputs by pixels and pixels by outputs.
// Images come one after the other; a sum of one thread goes over all pixels in their order, so that the results are the
// same with any number of threads.
#include <algorithm>

#include "ops/conv/bands.h"
#include "ops/conv/depthwise.h"
#include "ops/gemm/tile.h"
#include "ops/host_simd.h"
#include "ops/threads.h"

namespace npu::conv {
namespace {

constexpr int64_t kMargin = 64;   // floats that a vector may read beyond the last pixel
constexpr int64_t kManyResults = 4096;  // below it threads take longer to wake than to write
constexpr int64_t kManyPixels = 256;    // of small images, which are taken together
constexpr int64_t kStreams = 8;         // rows of memory that are written at a time

// Some images: `taken` is read by taps, `given` has the pixels of the products.
struct Operands {
  const float* taken;
  PixelStrides taken_strides;  // of neighbouring positions
  const float* given;
  PixelStrides given_strides;
  int64_t sizes[kAxes];        // of positions
};

// A block of the gradient: inputs from `taken`, outputs from `given`.
struct Block {
  const Operands* operands;
  int64_t inputs, outputs;
  float* sums;
  int64_t stride;
};

template <int kBytes, int kVectors>
struct SumProducts {
  template <int kRows>
  static NPU_INLINE void tile(const Block& block, int64_t first) {
    const Operands& o = *block.operands;
    float* const sums = block.sums + first * block.stride;
    gemm::Tile<float, kBytes, kRows, kVectors> tile(sums, block.stride);
    for (int64_t d = 0; d < o.sizes[0]; ++d) {
      for (int64_t h = 0; h < o.sizes[1]; ++h) {
        const float* rows[kRows];
#pragma GCC unroll 8
        for (int i = 0; i < kRows; ++i) rows[i] = o.taken + o.taken_strides.at(d, h, 0) + first + i;
        const float* const given = o.given + o.given_strides.at(d, h, 0);
        tile.add(rows, given, o.given_strides.axes[2], o.sizes[2], o.taken_strides.axes[2]);
      }
    }
    tile.finish();
    tile.store(sums, block.stride);
  }

  static NPU_INLINE void run(const Block* block) {
    int64_t first = 0;
    for (; first + gemm::kTileRows <= block->inputs; first += gemm::kTileRows) tile<gemm::kTileRows>(*block, first);
    for (; first + 3 <= block->inputs; first += 3) tile<3>(*block, first);
    for (; first < block->inputs; ++first) tile<1>(*block, first);
  }
};

// A row of taps of a depthwise convolution: of each one, the sum of each channel.
struct Taps {
  const Operands* operands;
  int64_t count, step;  // from a tap to the next one in `taken`
  int64_t channels;
  float* sums;
  int64_t stride;
};

template <int kBytes>
struct SumChannels {
  using V = typename pointwise::VectorOf<float, kBytes>::unaligned;
  using Sum = typename pointwise::VectorOf<float, kBytes>::type;
  static constexpr int64_t kLanes = kBytes / sizeof(float);

  static NPU_INLINE V& at(float* numbers) { return *reinterpret_cast<V*>(numbers); }
  static NPU_INLINE Sum load(const float* numbers) { return *reinterpret_cast<const V*>(numbers); }

  // Some taps and vectors of channels at a time, whose sums do not wait for one another.
  template <int kTaps, int kVectors>
  static NPU_INLINE void sum(const Taps& taps, int64_t tap, int64_t channel) {
    const Operands& o = *taps.operands;
    float* const to = taps.sums + tap * taps.stride + channel;
    Sum sums[kTaps][kVectors];
    for (int i = 0; i < kTaps; ++i) {
      for (int k = 0; k < kVectors; ++k) sums[i][k] = at(to + i * taps.stride + k * kLanes);
    }
    for (int64_t d = 0; d < o.sizes[0]; ++d) {
      for (int64_t h = 0; h < o.sizes[1]; ++h) {
        const float* x = o.taken + o.taken_strides.at(d, h, 0) + channel + tap * taps.step;
        const float* y = o.given + o.given_strides.at(d, h, 0) + channel;
        for (int64_t w = 0; w < o.sizes[2]; ++w, x += o.taken_strides.axes[2], y += o.given_strides.axes[2]) {
          for (int k = 0; k < kVectors; ++k) {
            const Sum given = load(y + k * kLanes);
            for (int i = 0; i < kTaps; ++i) sums[i][k] += load(x + i * taps.step + k * kLanes) * given;
          }
        }
      }
    }
    for (int i = 0; i < kTaps; ++i) {
      for (int k = 0; k < kVectors; ++k) at(to + i * taps.stride + k * kLanes) = sums[i][k];
    }
  }

  template <int kVectors>
  static NPU_INLINE void sum_row(const Taps& taps, int64_t channel) {
    int64_t tap = 0;
    for (; tap + 3 <= taps.count; tap += 3) sum<3, kVectors>(taps, tap, channel);
    for (; tap < taps.count; ++tap) sum<1, kVectors>(taps, tap, channel);
  }

  static NPU_INLINE void run(const Taps* taps) {
    int64_t channel = 0;
    for (; channel + 3 * kLanes < taps->channels; channel += 4 * kLanes) sum_row<4>(*taps, channel);
    for (; channel < taps->channels; channel += kLanes) sum_row<1>(*taps, channel);
  }
};

int64_t widest() { return vector_bytes() == 64 ? 64 : vector_bytes() == 32 ? 16 : 8; }

void sum_products(const Block& block) {
#if defined(__x86_64__)
  if (has_avx512()) {
    if (block.outputs > 32) return run_with_avx512<SumProducts<64, 4>>(&block);
    if (block.outputs > 16) return run_with_avx512<SumProducts<64, 2>>(&block);
    return run_with_avx512<SumProducts<64, 1>>(&block);
  }
  if (has_avx2() && block.outputs > 8) return run_with_avx2<SumProducts<32, 2>>(&block);
  if (has_avx2()) return run_with_avx2<SumProducts<32, 1>>(&block);
#endif
  SumProducts<16, 2>::run(&block);
}

void sum_channels(const Taps& taps) {
#if defined(__x86_64__)
  if (has_avx512()) return run_with_avx512<SumChannels<64>>(&taps);
  if (has_avx2()) return run_with_avx2<SumChannels<32>>(&taps);
#endif
  SumChannels<16>::run(&taps);
}

// A transposed convolution takes pixels of dy by its taps, a direct one pixels of x.
class Gradient {
 public:
  explicit Gradient(const OpCall& call)
      : geometry_(geometry_of_weight_gradient(call)), strides_(strides_of_weights(geometry_, call.outputs[0])) {
    if (geometry_.is_transposed) {
      std::swap(geometry_.x, geometry_.y);
      std::swap(strides_.input, strides_.output);
      geometry_.is_transposed = false;
    }
    plane_ = planes_of(geometry_)[0];
    for (int axis = 0; axis < kAxes; ++axis) {
      const Plane::Axis& one = plane_.axes[axis];
      least_[axis] = one.least_offset();
      extent_[axis] = (one.count - 1) * one.input_step + one.most_offset() - least_[axis] + 1;
    }
    // The images of a group are positions of the first axis.
    const int64_t pixels = geometry_.y.sizes[1] * geometry_.y.sizes[2];
    if (geometry_.y.sizes[0] == 1 && pixels > 0 && geometry_.x.batch > 0) {
      images_ = std::clamp<int64_t>(kManyPixels / pixels, 1, geometry_.x.batch);
    }
  }

  uint64_t workspace_bytes() const {
    return uint64_t(sizeof(float) * (sum_elements() + 2 * (taken_elements() + given_elements())));  // of two groups
  }

  void run(const OpCall& call) const;

 private:
  // [group, tap, input, output]; depthwise [tap, channel].
  int64_t sum_elements() const {
    const int64_t inputs = geometry_.is_depthwise() ? 1 : geometry_.groups * geometry_.group_inputs();
    return geometry_.taps() * inputs * columns() + kMargin;
  }
  // Returns the columns for the outputs of a group, to the end of the last vector.
  int64_t columns() const {
    const int64_t outputs = geometry_.is_depthwise() ? geometry_.groups : geometry_.group_outputs();
    return (outputs + widest() - 1) / widest() * widest();
  }
  int64_t taken_image() const { return extent_[0] * extent_[1] * extent_[2] * geometry_.x.channels; }
  int64_t given_image() const {
    return geometry_.y.sizes[0] * geometry_.y.sizes[1] * geometry_.y.sizes[2] * geometry_.y.channels;
  }
  int64_t taken_elements() const { return images_ * taken_image() + kMargin; }
  int64_t given_elements() const { return images_ * given_image() + kMargin; }
  // Whether the products may read y where it is: whole vectors of the outputs of a group, and nothing beyond them.
  bool is_direct(const Image& y) const {
    const int64_t rest = geometry_.group_outputs() % widest();
    const bool is_tile = vector_bytes() > 16 && rest * 4 >= vector_bytes() && (rest & (rest - 1)) == 0;
    return y.dtype == kFloat32 && y.channel_stride == 1 && !geometry_.is_depthwise() && (rest == 0 || is_tile);
  }
  // Where a group of images is copied to: the next one has other memory.
  float* taken_of(int64_t group, float* sums) const { return sums + sum_elements() + group % 2 * taken_elements(); }
  float* given_of(int64_t group, float* sums) const {
    return sums + sum_elements() + 2 * taken_elements() + group % 2 * given_elements();
  }
  int64_t images_of(int64_t group) const { return std::min(images_, geometry_.x.batch - group * images_); }
  void add_images(const Image& x, const Image& y, float* sums) const;
  // The inputs of neighbouring taps of a row are neighbours, too: they are taken for those of one. Depthwise ones are
  // read together.
  int64_t joined_taps() const {
    const bool are_neighbours = geometry_.groups == 1 && geometry_.dilation[2] == 1;
    return are_neighbours || geometry_.is_depthwise() ? geometry_.kernel[2] : 1;
  }
  int64_t inputs_of_tap() const { return geometry_.is_depthwise() ? 1 : geometry_.group_inputs() * joined_taps(); }
  int64_t blocks() const { return (inputs_of_tap() + gemm::kTileRows - 1) / gemm::kTileRows; }
  int64_t tasks() const;
  // `images`: which group of images.
  void add_task(int64_t task, int64_t images, const Image& y, float* sums) const;
  void write(const TensorDesc& result, const float* sums) const;
  void write_floats(const TensorDesc& result, const float* sums) const;

  Geometry geometry_;  // of a direct convolution; but for addresses
  WeightStrides strides_;
  Plane plane_;
  int64_t least_[kAxes], extent_[kAxes];
  int64_t images_ = 1;  // of a group
};

void Gradient::run(const OpCall& call) const {
  auto* sums = static_cast<float*>(call.workspace);
  std::fill(sums, sums + sum_elements(), 0.0f);
  const bool is_swapped = attrs_of<Attrs>(call).transposed != 0;
  Image x = geometry_.x, y = geometry_.y;
  x.data = static_cast<char*>(call.inputs[is_swapped ? 1 : 0].data);
  y.data = static_cast<char*>(call.inputs[is_swapped ? 0 : 1].data);
  if (y.sizes[0] * y.sizes[1] * y.sizes[2] > 0) add_images(x, y, sums);
  write(call.outputs[0], sums);
}

// While threads add the images of a group, one of them copies the next ones.
void Gradient::add_images(const Image& x, const Image& y, float* sums) const {
  constexpr int64_t origin[kAxes] = {};
  const int64_t copies = is_direct(y) ? 1 : 2, count = tasks();
  const bool is_ahead = thread_count() > 1;
  const auto copy = [&](int64_t group, int64_t which) {
    for (int64_t i = 0; i < images_of(group); ++i) {
      const int64_t image = group * images_ + i;
      if (which == 0) copy_pixels(x, image, least_, extent_, taken_of(group, sums) + i * taken_image());
      else copy_pixels(y, image, origin, y.sizes, given_of(group, sums) + i * given_image());
    }
  };
  for (int64_t group = 0; group * images_ < x.batch; ++group) {
    for (int64_t which = 0; which < copies && (group == 0 || !is_ahead); ++which) copy(group, which);
    const int64_t of_next = is_ahead && (group + 1) * images_ < x.batch ? copies : 0;
    parallel_tasks(of_next + count, [&](int64_t task) {
      if (task < of_next) copy(group + 1, task);
      else add_task(task - of_next, group, y, sums);
    });
  }
}

// A tap and some inputs of a group; of a depthwise convolution a row of taps.
int64_t Gradient::tasks() const {
  const int64_t taps = geometry_.taps() / joined_taps();
  return geometry_.is_depthwise() ? taps : geometry_.groups * taps * blocks();
}

void Gradient::add_task(int64_t task, int64_t images, const Image& y, float* sums) const {
  const int64_t channels = geometry_.x.channels;
  const PixelStrides in{{extent_[1] * extent_[2] * channels, extent_[2] * channels, channels}};
  PixelStrides out{{y.sizes[1] * y.sizes[2] * y.channels, y.sizes[2] * y.channels, y.channels}};
  const float* outputs = given_of(images, sums);
  if (is_direct(y)) {
    std::copy_n(y.strides, kAxes, out.axes);
    outputs = reinterpret_cast<const float*>(y.data) + images * images_ * y.batch_stride;
  }
  PixelStrides steps = in;
  for (int axis = 0; axis < kAxes; ++axis) steps.axes[axis] *= plane_.axes[axis].input_step;
  if (images_ > 1) {
    steps.axes[0] = taken_image();
    out.axes[0] = is_direct(y) ? y.batch_stride : given_image();
  }
  const int64_t joined = joined_taps(), width = geometry_.kernel[2] / joined, taps = geometry_.taps() / joined;
  const int64_t block = task % blocks(), tap = task / blocks() % taps, group = task / blocks() / taps;
  const int64_t w = tap % width, h = tap / width % geometry_.kernel[1];
  const int64_t d = tap / width / geometry_.kernel[1], first = block * gemm::kTileRows, inputs = inputs_of_tap();
  const int64_t offset = in.at(plane_.axes[0].taps[d].offset - least_[0], plane_.axes[1].taps[h].offset - least_[1],
                               plane_.axes[2].taps[w].offset - least_[2]);
  const int64_t rows_of_tap = geometry_.is_depthwise() ? joined : inputs;
  float* const row = sums + ((group * taps + tap) * rows_of_tap + first) * columns();
  Operands operands{taken_of(images, sums) + offset + group * inputs + first, steps,
                    outputs + group * geometry_.group_outputs(), out,
                    {images_ > 1 ? images_of(images) : y.sizes[0], y.sizes[1], y.sizes[2]}};
  if (geometry_.is_depthwise()) {
    const std::vector<Plane::Tap>& taps_of_row = plane_.axes[2].taps;
    const int64_t step = joined > 1 ? (taps_of_row[1].offset - taps_of_row[0].offset) * channels : 0;
    return sum_channels({&operands, joined, step, y.channels, row, columns()});
  }
  for (int64_t left = 0; left < geometry_.group_outputs(); left += widest()) {
    sum_products({&operands, std::min<int64_t>(gemm::kTileRows, inputs - first),
                  std::min(widest(), geometry_.group_outputs() - left), row + left, columns()});
    operands.given += widest();
  }
}

// Each of some outputs is a row of memory that is written from its begin to its end, where it is one.
void Gradient::write_floats(const TensorDesc& result, const float* sums) const {
  const int64_t taps = geometry_.taps(), inputs = geometry_.group_inputs(), outputs = geometry_.group_outputs();
  const int64_t blocks = (outputs + kStreams - 1) / kStreams;
  auto* const to = static_cast<float*>(result.data);
  std::vector<int64_t> places(static_cast<size_t>(taps));
  for (int64_t tap = 0; tap < taps; ++tap) places[size_t(tap)] = strides_.of_tap(geometry_, tap);
  const bool has_inputs_inside = strides_.input < strides_.tap[kAxes - 1];
  const auto write_block = [&](int64_t group, int64_t first, int64_t tap, int64_t input) {
    const float* from = sums + ((group * taps + tap) * inputs + input) * columns() + first;
    float* row = to + places[size_t(tap)] + group * strides_.group + input * strides_.input + first * strides_.output;
    for (int64_t i = 0; i < std::min(kStreams, outputs - first); ++i) row[i * strides_.output] = from[i];
  };
  parallel_items(geometry_.groups * blocks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      const int64_t group = block / blocks, first = block % blocks * kStreams;
      const int64_t outer = has_inputs_inside ? taps : inputs, inner = has_inputs_inside ? inputs : taps;
      for (int64_t i = 0; i < outer; ++i) {
        for (int64_t j = 0; j < inner; ++j) {
          write_block(group, first, has_inputs_inside ? i : j, has_inputs_inside ? j : i);
        }
      }
    }
  });
}

void Gradient::write(const TensorDesc& result, const float* sums) const {
  if (result.dtype == kFloat32 && !geometry_.is_depthwise()) return write_floats(result, sums);
  const pointwise::WriteRow write = pointwise::writer(pointwise::element_of(result.dtype), pointwise::kFloat32);
  const int64_t item = item_bytes(result.dtype), inputs = geometry_.group_inputs();
  auto* const to = static_cast<char*>(result.data);
  const auto write_taps = [&](int64_t begin, int64_t end) {
    for (int64_t tap = begin; tap < end; ++tap) {
      const int64_t place = strides_.of_tap(geometry_, tap);
      if (geometry_.is_depthwise()) {
        write(sums + tap * columns(), to + place * item, strides_.group, geometry_.groups);
        continue;
      }
      for (int64_t group = 0; group < geometry_.groups; ++group) {
        for (int64_t input = 0; input < inputs; ++input) {
          const int64_t at = place + group * strides_.group + input * strides_.input;
          write(sums + ((group * geometry_.taps() + tap) * inputs + input) * columns(), to + at * item, strides_.output,
                geometry_.group_outputs());
        }
      }
    }
  };
  parallel_items(geometry_.taps(), std::max<int64_t>(1, kManyResults * geometry_.taps() / result.numel), write_taps);
}

Status launch(const OpCall& call) {
  if (call.outputs[0].numel > 0) Gradient(call).run(call);
  return {};
}

uint64_t workspace_bytes(const OpCall& call) { return Gradient(call).workspace_bytes(); }

}  // namespace

KernelPtr weight_gradient_kernel() {
  return make_kernel({kWeightGradient, "conv_weight_gradient.host", DeviceType::Host},
                     {check_weight_gradient, launch, weight_gradient_cost, workspace_bytes});
}

}  // namespace npu::conv
