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

// One image: `taken` is read by taps, `given` has the pixels of the products.
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
        tile.add(rows, o.given + o.given_strides.at(d, h, 0), o.given_strides.axes[2], o.sizes[2], o.taken_strides.axes[2]);
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

// Depthwise: each channel by itself.
template <int kBytes>
struct SumChannels {
  using V = typename pointwise::VectorOf<float, kBytes>::unaligned;
  using Sum = typename pointwise::VectorOf<float, kBytes>::type;

  static NPU_INLINE void run(const Block* block) {
    const Operands& o = *block->operands;
    constexpr int64_t lanes = kBytes / sizeof(float);
    for (int64_t channel = 0; channel < block->outputs; channel += lanes) {
      Sum sum = *reinterpret_cast<V*>(block->sums + channel);
      for (int64_t d = 0; d < o.sizes[0]; ++d) {
        for (int64_t h = 0; h < o.sizes[1]; ++h) {
          const float* x = o.taken + o.taken_strides.at(d, h, 0) + channel;
          const float* y = o.given + o.given_strides.at(d, h, 0) + channel;
          for (int64_t w = 0; w < o.sizes[2]; ++w, x += o.taken_strides.axes[2], y += o.given_strides.axes[2]) {
            sum += Sum(*reinterpret_cast<const V*>(x)) * Sum(*reinterpret_cast<const V*>(y));
          }
        }
      }
      *reinterpret_cast<V*>(block->sums + channel) = sum;
    }
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
  if (has_avx2()) return block.outputs > 8 ? run_with_avx2<SumProducts<32, 2>>(&block) : run_with_avx2<SumProducts<32, 1>>(&block);
#endif
  SumProducts<16, 2>::run(&block);
}

void sum_channels(const Block& block) {
#if defined(__x86_64__)
  if (has_avx512()) return run_with_avx512<SumChannels<64>>(&block);
  if (has_avx2()) return run_with_avx2<SumChannels<32>>(&block);
#endif
  SumChannels<16>::run(&block);
}

// A transposed convolution takes pixels of dy by its taps, a direct one pixels of x.
class Gradient {
 public:
  explicit Gradient(const OpCall& call) : geometry_(geometry_of_weight_gradient(call)), strides_(strides_of_weights(geometry_, call.outputs[0])) {
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
  }

  uint64_t workspace_bytes() const {
    return uint64_t(sizeof(float) * (sum_elements() + 2 * (taken_elements() + given_elements())));
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
  int64_t taken_elements() const { return extent_[0] * extent_[1] * extent_[2] * geometry_.x.channels + kMargin; }
  int64_t given_elements() const {
    return geometry_.y.sizes[0] * geometry_.y.sizes[1] * geometry_.y.sizes[2] * geometry_.y.channels + kMargin;
  }
  // Whether the products may read y where it is: whole vectors of the outputs of a group, and nothing beyond them.
  bool is_direct(const Image& y) const {
    const int64_t rest = geometry_.group_outputs() % widest();
    const bool is_tile = vector_bytes() > 16 && rest * 4 >= vector_bytes() && (rest & (rest - 1)) == 0;
    return y.dtype == kFloat32 && y.channel_stride == 1 && !geometry_.is_depthwise() && (rest == 0 || is_tile);
  }
  // Where an image is copied to: the next one has other memory.
  float* taken_of(int64_t image, float* sums) const { return sums + sum_elements() + image % 2 * taken_elements(); }
  float* given_of(int64_t image, float* sums) const {
    return sums + sum_elements() + 2 * taken_elements() + image % 2 * given_elements();
  }
  void add_images(const Image& x, const Image& y, float* sums) const;
  // The inputs of neighbouring taps of a row are neighbours, too: they are taken for those of one.
  int64_t joined_taps() const { return geometry_.groups == 1 && geometry_.dilation[2] == 1 ? geometry_.kernel[2] : 1; }
  int64_t inputs_of_tap() const { return geometry_.is_depthwise() ? 1 : geometry_.group_inputs() * joined_taps(); }
  int64_t blocks() const { return (inputs_of_tap() + gemm::kTileRows - 1) / gemm::kTileRows; }
  int64_t tasks() const;
  void add_task(int64_t task, int64_t image, const Image& y, float* sums) const;
  void write(const TensorDesc& result, const float* sums) const;

  Geometry geometry_;  // of a direct convolution; but for addresses
  WeightStrides strides_;
  Plane plane_;
  int64_t least_[kAxes], extent_[kAxes];
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

// While threads add an image, one of them copies the next one.
void Gradient::add_images(const Image& x, const Image& y, float* sums) const {
  constexpr int64_t origin[kAxes] = {};
  const int64_t copies = is_direct(y) ? 1 : 2, count = tasks();
  const bool is_ahead = thread_count() > 1;
  const auto copy = [&](int64_t image, int64_t which) {
    if (which == 0) copy_pixels(x, image, least_, extent_, taken_of(image, sums));
    else copy_pixels(y, image, origin, y.sizes, given_of(image, sums));
  };
  for (int64_t image = 0; image < x.batch; ++image) {
    for (int64_t which = 0; which < copies && (image == 0 || !is_ahead); ++which) copy(image, which);
    const int64_t of_next = is_ahead && image + 1 < x.batch ? copies : 0;
    parallel_tasks(of_next + count, [&](int64_t task) {
      if (task < of_next) copy(image + 1, task);
      else add_task(task - of_next, image, y, sums);
    });
  }
}

// A tap and some inputs of a group; of a depthwise convolution a tap.
int64_t Gradient::tasks() const {
  const int64_t taps = geometry_.taps() / joined_taps();
  return geometry_.is_depthwise() ? taps : geometry_.groups * taps * blocks();
}

void Gradient::add_task(int64_t task, int64_t image, const Image& y, float* sums) const {
  const PixelStrides in{{extent_[1] * extent_[2] * geometry_.x.channels, extent_[2] * geometry_.x.channels, geometry_.x.channels}};
  PixelStrides out{{y.sizes[1] * y.sizes[2] * y.channels, y.sizes[2] * y.channels, y.channels}};
  const float* outputs = given_of(image, sums);
  if (is_direct(y)) {
    std::copy_n(y.strides, kAxes, out.axes);
    outputs = reinterpret_cast<const float*>(y.data) + image * y.batch_stride;
  }
  PixelStrides steps = in;
  for (int axis = 0; axis < kAxes; ++axis) steps.axes[axis] *= plane_.axes[axis].input_step;
  const int64_t joined = joined_taps(), width = geometry_.kernel[2] / joined, taps = geometry_.taps() / joined;
  const int64_t block = task % blocks(), tap = task / blocks() % taps, group = task / blocks() / taps;
  const int64_t w = tap % width, h = tap / width % geometry_.kernel[1];
  const int64_t d = tap / width / geometry_.kernel[1], first = block * gemm::kTileRows, inputs = inputs_of_tap();
  const int64_t offset = in.at(plane_.axes[0].taps[d].offset - least_[0], plane_.axes[1].taps[h].offset - least_[1],
                               plane_.axes[2].taps[w].offset - least_[2]);
  float* const row = sums + ((group * taps + tap) * inputs + first) * columns();
  Operands operands{taken_of(image, sums) + offset + group * inputs + first, steps,
                    outputs + group * geometry_.group_outputs(), out, {y.sizes[0], y.sizes[1], y.sizes[2]}};
  if (geometry_.is_depthwise()) return sum_channels({&operands, 1, y.channels, row, columns()});
  for (int64_t left = 0; left < geometry_.group_outputs(); left += widest()) {
    sum_products({&operands, std::min<int64_t>(gemm::kTileRows, inputs - first),
                  std::min(widest(), geometry_.group_outputs() - left), row + left, columns()});
    operands.given += widest();
  }
}

void Gradient::write(const TensorDesc& result, const float* sums) const {
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
          write(sums + ((group * geometry_.taps() + tap) * inputs + input) * columns(),
                to + (place + group * strides_.group + input * strides_.input) * item, strides_.output, geometry_.group_outputs());
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
