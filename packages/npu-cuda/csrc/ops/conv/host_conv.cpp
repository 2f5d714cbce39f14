// Convolutions as products of matrices (implicit GEMM): the rows of a tile are pixels, its columns outputs, and its sums go over taps and
// inputs. Weights are packed in panels of as many columns as a tile has.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>

#include "ops/conv/bands.h"
#include "ops/conv/depthwise.h"
#include "ops/conv/steps.h"
#include "ops/gemm/tile.h"
#include "ops/host_simd.h"
#include "ops/threads.h"

namespace npu::conv {
namespace {

constexpr int64_t kMostPixels = 384;  // of a band: sums of a panel stay in the second cache, as do its pixels
constexpr int64_t kMostDepth = 512;   // of a block of a panel, which stays there as well
constexpr int64_t kItem = 1024;       // parallel_for gives threads multiples of as many

// Taps whose numbers are side by side, in the input and in a panel.
struct Run {
  int64_t offset;  // from a pixel at the least offset
  int64_t row;     // of a panel
  int64_t depth;
};

struct PlanePlan {
  Bands bands;
  std::vector<Run> runs;
};

// Of panels that a call packs by itself; npu::pack_matrix takes the same.
int64_t panel_width(int64_t outputs) { return outputs <= 16 ? 16 : outputs <= 32 ? 32 : 64; }

std::vector<Run> runs_of(const Geometry& g, const Bands& bands) {
  const int64_t inputs = g.group_inputs();
  std::vector<Run> runs;
  const Plane::Axis* axes = bands.plane.axes;
  for (const Plane::Tap& d : axes[0].taps) {
    for (const Plane::Tap& h : axes[1].taps) {
      for (const Plane::Tap& w : axes[2].taps) {
        const int64_t offset = bands.strides.at(d.offset - bands.least[0], h.offset - bands.least[1], w.offset - bands.least[2]);
        const int64_t row = ((d.index * g.kernel[1] + h.index) * g.kernel[2] + w.index) * inputs;
        for (int64_t start = 0; start < inputs; start += kMostDepth) {
          const int64_t depth = std::min(kMostDepth, inputs - start);
          Run* last = runs.empty() ? nullptr : &runs.back();
          const bool follows = last && last->offset + last->depth == offset + start && last->row + last->depth == row + start;
          if (follows && last->depth + depth <= kMostDepth) last->depth += depth;
          else runs.push_back({offset + start, row + start, depth});
        }
      }
    }
  }
  return runs;
}

// Some of the runs, over the pixels of a band and the columns of a panel.
struct Block {
  const float* base;
  const int64_t* pixels;  // offsets from base
  int64_t count;
  const Run* begin;
  const Run* end;
  const float* panel;
  int64_t panel_stride;
  const float* initial;   // sums to go on from
  int64_t initial_stride;
  float* sums;
  int64_t sums_stride;
  const int64_t* places;  // offsets from sums; null: sums_stride apart
  int64_t columns;
};

template <int kBytes, int kVectors>
struct RunBlock {
  template <int kRows>
  static NPU_INLINE void tile(const Block& block, int64_t first) {
    gemm::Tile<float, kBytes, kRows, kVectors> tile(block.initial + first * block.initial_stride, block.initial_stride);
    const float* pixels[kRows];
    for (int i = 0; i < kRows; ++i) pixels[i] = block.base + block.pixels[first + i];
    for (const Run* run = block.begin; run < block.end; ++run) {
      const float* rows[kRows];
#pragma GCC unroll 8
      for (int i = 0; i < kRows; ++i) rows[i] = pixels[i] + run->offset;
      tile.add(rows, block.panel + run->row * block.panel_stride, block.panel_stride, run->depth);
    }
    tile.finish();
    if (!block.places) return tile.store(block.sums + first * block.sums_stride, block.sums_stride);
    float* to[kRows];
    for (int i = 0; i < kRows; ++i) to[i] = block.sums + block.places[first + i];
    tile.store(to, block.columns);
  }

  static NPU_INLINE void run(const Block* block) {
    int64_t first = 0;
    for (; first + gemm::kTileRows <= block->count; first += gemm::kTileRows) tile<gemm::kTileRows>(*block, first);
    for (; first + 2 <= block->count; first += 2) tile<2>(*block, first);
    if (first < block->count) tile<1>(*block, first);
  }
};

void run_block(const Block& block) {
#if defined(__x86_64__)
  if (has_avx512()) {
    if (block.columns > 32) return run_with_avx512<RunBlock<64, 4>>(&block);
    if (block.columns > 16) return run_with_avx512<RunBlock<64, 2>>(&block);
    return run_with_avx512<RunBlock<64, 1>>(&block);
  }
  if (has_avx2()) return block.columns > 8 ? run_with_avx2<RunBlock<32, 2>>(&block) : run_with_avx2<RunBlock<32, 1>>(&block);
#endif
  RunBlock<16, 2>::run(&block);
}

// Of the widest tile.
int64_t tile_columns() { return vector_bytes() == 64 ? 64 : vector_bytes() == 32 ? 16 : 8; }

void run_panel(Block block) {
  const int64_t count = block.columns, step = tile_columns();
  for (int64_t left = 0; left < count; left += step) {
    block.columns = std::min(step, count - left);
    run_block(block);
    block.panel += step;
    block.initial += step;
    block.sums += step;
  }
}

class Plan {
 public:
  // `width`: of panels that are given; 0 where a call packs its weights. `steps`: what follows; may be null.
  Plan(const Geometry& geometry, int64_t width, bool has_bias, std::shared_ptr<const Steps> steps = nullptr)
      : geometry_(geometry), is_packed_(width > 0), has_bias_(has_bias), columns_(width ? width : panel_width(geometry_.group_outputs())),
        panels_((geometry_.group_outputs() + columns_ - 1) / columns_),
        panel_elements_(geometry_.taps() * geometry_.group_inputs() * columns_), steps_(std::move(steps)) {
    for (const Plane& plane : planes_of(geometry_)) {
      PlanePlan& planned = planes_.emplace_back(PlanePlan{bands_of(geometry_, plane, kMostPixels, false), {}});
      planned.runs = runs_of(geometry_, planned.bands);
      most_band_ = std::max(most_band_, planned.bands.copied_elements(geometry_.x.channels));
      most_pixels_ = std::max(most_pixels_, planned.bands.rows * planned.bands.width());
    }
  }

  uint64_t workspace_bytes() const {
    return uint64_t(sizeof(float) * (packed_elements() + thread_count() * slice_elements()));
  }

  void run(const OpCall& call) const {
    if (!is_packed_) pack(call.inputs[1], static_cast<float*>(call.workspace));
    const auto* packed = static_cast<const float*>(is_packed_ ? call.inputs[1].data : call.workspace);
    const int64_t slices = (int64_t(call.workspace_bytes / sizeof(float)) - packed_elements()) / slice_elements();
    if (steps_) {
      const StepsCall fused(call);
      for (const PlanePlan& plane : planes_) run_plane(call, plane, packed, slices, &fused.call);
    } else {
      for (const PlanePlan& plane : planes_) run_plane(call, plane, packed, slices, nullptr);
    }
  }

 private:
  int64_t units() const { return geometry_.groups * panels_; }
  int64_t packed_elements() const { return is_packed_ ? 0 : units() * panel_elements_; }
  // Of one thread: the input and the sums of a band, and where its pixels are.
  int64_t slice_elements() const {
    const int64_t elements = most_band_ + most_pixels_ * (columns_ + 2 * int64_t(sizeof(int64_t) / sizeof(float)));
    return (elements + 15) / 16 * 16;
  }

  void pack(const TensorDesc& weights, float* packed) const;
  // `fused`: the call of the steps; null where there are none.
  void run_plane(const OpCall& call, const PlanePlan& plane, const float* packed, int64_t slices, const OpCall* fused) const;
  void run_band(const OpCall& call, const PlanePlan& plane, const BandPlace& place, int64_t first, int64_t end,
                const float* packed, float* slice, const OpCall* fused) const;

  Geometry geometry_;  // but for addresses
  bool is_packed_, has_bias_;
  int64_t columns_, panels_, panel_elements_;
  std::shared_ptr<const Steps> steps_;
  std::vector<PlanePlan> planes_;
  int64_t most_band_ = 0, most_pixels_ = 1;
};

// [group, panel, tap and input, column]; columns beyond the last output are 0.
void Plan::pack(const TensorDesc& weights, float* packed) const {
  const WeightStrides strides = strides_of_weights(geometry_, weights);
  const pointwise::ReadRow read = pointwise::reader(pointwise::element_of(weights.dtype), pointwise::kFloat32);
  const int64_t inputs = geometry_.group_inputs(), outputs = geometry_.group_outputs(), item = item_bytes(weights.dtype);
  const int64_t rows = geometry_.taps() * inputs;
  parallel_for(units() * kItem, kItem, [&](int64_t begin, int64_t end) {
    for (int64_t unit = begin / kItem; unit < end / kItem; ++unit) {
      const int64_t left = unit % panels_ * columns_, count = std::min(columns_, outputs - left);
      const char* from = static_cast<const char*>(weights.data) + (unit / panels_ * strides.group + left * strides.output) * item;
      for (int64_t row = 0; row < rows; ++row) {
        float* to = packed + unit * panel_elements_ + row * columns_;
        read(from + (strides.of_tap(geometry_, row / inputs) + row % inputs * strides.input) * item, strides.output, to, count);
        std::fill(to + count, to + columns_, 0.0f);
      }
    }
  });
}

void Plan::run_plane(const OpCall& call, const PlanePlan& plane, const float* packed, int64_t slices,
                     const OpCall* fused) const {
  const int64_t bands = geometry_.x.batch * plane.bands.depths() * plane.bands.count;
  if (bands == 0 || plane.bands.width() == 0 || plane.bands.height() == 0) return;
  // Few bands are shared by outputs, at the price of another copy of their input.
  const int64_t parts = bands >= slices ? 1 : std::min(units(), (slices + bands - 1) / bands);
  std::atomic<int64_t> taken{0};
  const int64_t items = bands * parts, least = (items + slices - 1) / slices;
  parallel_for(items * kItem, least * kItem, [&](int64_t begin, int64_t end) {
    float* slice = static_cast<float*>(call.workspace) + packed_elements() + taken++ * slice_elements();
    for (int64_t item = begin / kItem; item < end / kItem; ++item) {
      const int64_t part = item % parts;
      run_band(call, plane, place_of(plane.bands, item / parts), units() * part / parts, units() * (part + 1) / parts, packed,
               slice, fused);
    }
  });
}

void Plan::run_band(const OpCall& call, const PlanePlan& plane, const BandPlace& place, int64_t first, int64_t end,
                    const float* packed, float* slice, const OpCall* fused) const {
  const Bands& bands = plane.bands;
  const TensorDesc& result = call.outputs[0];
  Image x = geometry_.x;
  x.data = static_cast<char*>(call.inputs[0].data);
  const int64_t width = bands.width(), pixels = place.rows * width;
  auto* from = reinterpret_cast<int64_t*>(slice);
  int64_t* to = from + most_pixels_;
  float* sums = reinterpret_cast<float*>(to + most_pixels_);
  const Plane::Axis* axes = bands.plane.axes;
  const Image& y = geometry_.y;
  const int64_t origin = place.image * y.batch_stride + (axes[0].first + place.depth * axes[0].step) * y.strides[0];
  for (int64_t pixel = 0; pixel < pixels; ++pixel) {
    const int64_t row = pixel / width, column = pixel % width;
    from[pixel] = bands.strides.at(0, row * axes[1].input_step, column * axes[2].input_step);
    to[pixel] = origin + (axes[1].first + (place.first_row + row) * axes[1].step) * y.strides[1] +
                (axes[2].first + column * axes[2].step) * y.strides[2];
  }
  const float* base = load_band(x, bands, place, sums + most_pixels_ * columns_);
  const pointwise::Element element = pointwise::element_of(y.dtype);
  const pointwise::WriteRow write = pointwise::writer(element, pointwise::kFloat32);
  const pointwise::ReadRow read = pointwise::reader(element, pointwise::kFloat32);
  const bool is_direct = y.dtype == kFloat32 && y.channel_stride == 1 && !fused;
  const int64_t first_pixel = (place.depth * bands.height() + place.first_row) * width;
  const int64_t item = item_bytes(y.dtype);
  for (int64_t unit = first; unit < end; ++unit) {
    const int64_t group = unit / panels_, left = unit % panels_ * columns_;
    const int64_t count = std::min(columns_, geometry_.group_outputs() - left), channel = group * geometry_.group_outputs() + left;
    float bias[64] = {};
    if (has_bias_) {
      const TensorDesc& given = call.inputs[2];
      read(static_cast<const char*>(given.data) + channel * given.strides[0] * item, given.strides[0], bias, count);
    }
    Block block{base + group * geometry_.group_inputs(), from, pixels, nullptr, nullptr,
                packed + unit * panel_elements_, columns_, bias, 0, sums, columns_, nullptr, count};
    const Run* run = plane.runs.data();
    const Run* const last = run + plane.runs.size();
    do {  // at least once, so that outputs without taps are the bias
      block.begin = run;
      int64_t depth = 0;
      while (run < last && (depth == 0 || depth + run->depth <= kMostDepth)) depth += run++->depth;
      block.end = run;
      if (run == last && is_direct) {
        block.sums = static_cast<float*>(result.data) + channel;
        block.places = to;
      }
      run_panel(block);
      block.initial = sums;
      block.initial_stride = columns_;
    } while (run < last);
    if (is_direct) continue;
    if (fused) {
      steps_->run(*fused, {place.image, first_pixel, pixels, channel, count, sums});
      continue;
    }
    for (int64_t pixel = 0; pixel < pixels; ++pixel) {
      write(sums + pixel * columns_, static_cast<char*>(result.data) + (to[pixel] + channel * y.channel_stride) * item,
            y.channel_stride, count);
    }
  }
}

class ConvKernel final : public Kernel {
 public:
  struct Functions {
    Status (*check)(const OpCall& call);
    Plan (*plan)(const OpCall& call);
    Cost (*cost)(const OpCall& call);
  };

  ConvKernel(OpKind kind, const char* id, Functions functions)
      : Kernel({.kind = kind, .id = id, .device = DeviceType::Host}), functions_(functions) {}

  Status supported(const OpCall& call) const override { return functions_.check(call); }
  uint64_t workspace_bytes(const OpCall& call) const override { return functions_.plan(call).workspace_bytes(); }
  Cost cost(const OpCall& call) const override { return functions_.cost(call); }
  Status prepare(const OpCall& call, void** state) const override {
    return *state = new Plan(functions_.plan(call)), Status();
  }
  void release(void* state) const noexcept override { delete static_cast<Plan*>(state); }

  Status launch(const OpCall& call) const override {
    if (call.outputs[0].numel == 0) return {};
    if (call.state) return static_cast<const Plan*>(call.state)->run(call), Status();
    return functions_.plan(call).run(call), Status();
  }

 private:
  Functions functions_;
};

Plan plan_of_conv(const OpCall& call) { return {geometry_of_conv(call), 0, call.num_inputs > 2}; }

Plan plan_of_packed(const OpCall& call) {
  const auto attrs = attrs_of<PackedAttrs>(call);
  const int64_t width = call.inputs[1].shape[3];
  if (attrs.steps == 0) return {geometry_of_packed(call), width, attrs.has_bias > 0};
  auto steps = std::make_shared<Steps>();
  (void)steps->make(StepsCall(call).call, width);  // the call is supported
  return {geometry_of_packed(call), width, attrs.has_bias > 0, std::move(steps)};
}

}  // namespace

std::vector<KernelPtr> host_kernels() {
  return {std::make_shared<ConvKernel>(kConv, "conv.host", ConvKernel::Functions{check_conv, plan_of_conv, conv_cost}),
          std::make_shared<ConvKernel>(kPackedConv, "packed_conv.host",
                                       ConvKernel::Functions{check_packed, plan_of_packed, packed_cost}),
          depthwise_kernel(), weight_gradient_kernel()};
}

}  // namespace npu::conv
