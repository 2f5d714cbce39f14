// Convolutions as products of matrices (implicit GEMM): the rows of a tile are pixels, its columns outputs, and its sums go over taps and
// inputs. Weights are packed in panels of as many columns as a tile has.
#include <algorithm>
#include <cstring>
#include <numeric>

#include "ops/conv/bands.h"
#include "ops/conv/depthwise.h"
#include "ops/conv/steps.h"
#include "ops/gemm/tile.h"
#include "ops/host_simd.h"
#include "ops/planned_kernel.h"
#include "ops/threads.h"

namespace npu::conv {
namespace {

constexpr int64_t kMostPixels = 384;  // of a band: its input stays in the second cache
// Of the sums of some pixels of a band and all channels. They stay in the first cache if the weights fit into the
// second one, and else in that.
constexpr int64_t kFewSums = 8192, kManySums = 65536, kFewWeights = 131072;
constexpr int64_t kLeastPixels = 8 * gemm::kTileRows;
constexpr int64_t kMostDepth = 512;   // of a block of a panel, which stays there as well
constexpr double kManyOperations = 1e6, kManyWeights = 16 << 10;
constexpr int64_t kItemsOfSlice = 4;  // at least: bands are not of one size
constexpr int64_t kPackedElements = 4096;  // below it threads take longer to wake than to pack

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

// Returns the width of panels that a call packs by itself; npu::pack_matrix takes the same.
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
  int64_t depth;          // of all of them
  const float* panel;
  int64_t panel_stride;
  const float* initial;   // sums to go on from
  int64_t initial_stride;
  float* sums;
  int64_t sums_stride;
  const int64_t* places;  // offsets from sums; null: sums_stride apart
  int64_t columns;
  const float* next = nullptr;  // numbers that are read after these, to be brought into the caches
  const fusion::RegisterSteps* steps = nullptr;
};

template <int kBytes, int kVectors>
struct RunBlock {
  template <int kRows, bool kFetches = false>
  static NPU_INLINE void tile(const Block& block, int64_t first) {
    using Sums = gemm::Tile<float, kBytes, kRows, kVectors>;
    Sums tile(block.initial + first * block.initial_stride, block.initial_stride);
    const float* next = block.next;
    const float* pixels[kRows];
    for (int i = 0; i < kRows; ++i) pixels[i] = block.base + block.pixels[first + i];
    for (const Run* run = block.begin; run < block.end; ++run) {
      const float* rows[kRows];
#pragma GCC unroll 8
      for (int i = 0; i < kRows; ++i) rows[i] = pixels[i] + run->offset;
      const float* const panel = block.panel + run->row * block.panel_stride;
      if constexpr (kFetches) {
        tile.add_and_fetch(rows, panel, block.panel_stride, run->depth, 1, next);
        next += run->depth * Sums::kColumns;
      } else {
        tile.add(rows, panel, block.panel_stride, run->depth);
      }
    }
    tile.finish();
    float* to[kRows];
    for (int i = 0; i < kRows; ++i) {
      to[i] = block.sums + (block.places ? block.places[first + i] : (first + i) * block.sums_stride);
    }
    if (block.steps) block.steps->finish<kRows>(tile, to, block.columns);
    tile.store(to, block.columns);
  }

  static NPU_INLINE void run(const Block* block) {
    int64_t first = 0;
    if constexpr (kVectors < gemm::kRowVectors<kBytes>) {
      if (block->next && block->count >= gemm::kTileRows) tile<gemm::kTileRows, true>(*block, 0), first = gemm::kTileRows;
    }
    for (; first + gemm::kTileRows <= block->count; first += gemm::kTileRows) tile<gemm::kTileRows>(*block, first);
    for (; first + 2 <= block->count; first += 2) tile<2>(*block, first);
    if (first < block->count) tile<1>(*block, first);
  }
};

// A single pixel, and as many columns as its tile has.
template <int kBytes>
struct RunPixel {
  static constexpr int kVectors = gemm::kRowVectors<kBytes>, kColumns = kVectors * kBytes / int{sizeof(float)};

  static NPU_INLINE void run(const Block* block) { RunBlock<kBytes, kVectors>::template tile<1>(*block, 0); }
};

void run_block(const Block& block) {
#if defined(__x86_64__)
  if (has_avx512()) {
    if (block.columns > 48) return run_with_avx512<RunBlock<64, 4>>(&block);
    if (block.columns > 32) return run_with_avx512<RunBlock<64, 3>>(&block);
    if (block.columns > 16) return run_with_avx512<RunBlock<64, 2>>(&block);
    if (block.columns > 8) return run_with_avx512<RunBlock<64, 1>>(&block);
    return run_with_avx512<RunBlock<32, 1>>(&block);  // some processors compute half a vector in half the time
  }
  if (has_avx2()) {
    if (block.columns > 16) return run_with_avx2<RunPixel<32>>(&block);
    return block.columns > 8 ? run_with_avx2<RunBlock<32, 2>>(&block) : run_with_avx2<RunBlock<32, 1>>(&block);
  }
#endif
  RunBlock<16, 2>::run(&block);
}

// Returns the columns of the widest tile for so many pixels, of a panel of so many columns.
int64_t tile_columns(int64_t pixels, int64_t width) {
  if (vector_bytes() == 64) return 64;
  if (vector_bytes() == 16) return 8;
  return pixels == 1 && width == RunPixel<32>::kColumns ? width : 16;
}

void run_panel(Block block) {
  const int64_t count = block.columns, step = tile_columns(block.count, block.panel_stride);
  for (int64_t left = 0; left < count; left += step) {
    block.columns = std::min(step, count - left);
    run_block(block);
    block.panel += step;
    block.initial += step;
    block.sums += step;
    if (block.next) block.next += step * block.depth;
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
      PlanePlan& planned = planes_.emplace_back(PlanePlan{bands_of(geometry_, plane, most_pixels(plane), false), {}});
      planned.runs = runs_of(geometry_, planned.bands);
      most_band_ = std::max(most_band_, planned.bands.copied_elements(geometry_.x.channels));
      most_pixels_ = std::max(most_pixels_, planned.bands.rows * planned.bands.width());
    }
    const int64_t sums = units() * panel_elements_ <= kFewWeights ? kFewSums : kManySums;
    const int64_t pixels = std::max(kLeastPixels, sums / std::max<int64_t>(1, geometry_.y.channels));
    part_pixels_ = std::min(most_pixels_, pixels / gemm::kTileRows * gemm::kTileRows);
  }

  uint64_t workspace_bytes() const {
    return uint64_t(sizeof(float) * (packed_elements() + thread_count() * slice_elements()));
  }

  void run(const OpCall& call) const {
    if (!is_packed_) pack(call.inputs[1], static_cast<float*>(call.workspace));
    const auto* packed = static_cast<const float*>(is_packed_ ? call.inputs[1].data : call.workspace);
    const int64_t slices = (int64_t(call.workspace_bytes / sizeof(float)) - packed_elements()) / slice_elements();
    const Results results(call, geometry_, steps_.get());
    for (const PlanePlan& plane : planes_) run_plane({call, plane, packed, results}, is_large(plane) ? slices : 1);
  }

 private:
  struct Launch {
    const OpCall& call;
    const PlanePlan& plane;
    const float* packed;
    const Results& results;
  };
  // Of a band: its pixels, as offsets of input and output, and panels of some outputs.
  struct Part {
    const float* base;
    const int64_t *from, *to;
    int64_t pixels;
    float* sums;  // of the first channel of all
  };

  int64_t units() const { return geometry_.groups * panels_; }
  int64_t packed_elements() const { return is_packed_ ? 0 : units() * panel_elements_; }
  // Returns the elements of one thread: where the pixels of a band are, its input, and sums. A tile reads beyond those of a
  // pixel.
  int64_t slice_elements() const {
    const int64_t places = most_pixels_ * 2 * int64_t(sizeof(int64_t) / sizeof(float));
    return (places + most_band_ + part_pixels_ * geometry_.y.channels + 64 + 15) / 16 * 16;
  }
  int64_t channel_of(int64_t unit) const { return unit / panels_ * geometry_.group_outputs() + unit % panels_ * columns_; }

  int64_t most_pixels(const Plane& plane) const;
  bool is_large(const PlanePlan& plane) const;
  void pack(const TensorDesc& weights, float* packed) const;
  void run_plane(const Launch& launch, int64_t slices) const;
  void run_band(const Launch& launch, const BandPlace& place, int64_t first, int64_t end, float* slice) const;
  void run_unit(const Launch& launch, const Part& part, int64_t unit) const;

  Geometry geometry_;  // but for addresses
  bool is_packed_, has_bias_;
  int64_t columns_, panels_, panel_elements_;
  std::shared_ptr<const Steps> steps_;
  std::vector<PlanePlan> planes_;
  int64_t most_band_ = 0, most_pixels_ = 1, part_pixels_ = 1;
};

// [group, panel, tap and input, column]; columns beyond the last output are 0.
void Plan::pack(const TensorDesc& weights, float* packed) const {
  const WeightStrides strides = strides_of_weights(geometry_, weights);
  const pointwise::ReadRow read = pointwise::reader(pointwise::element_of(weights.dtype), pointwise::kFloat32);
  const int64_t inputs = geometry_.group_inputs(), outputs = geometry_.group_outputs(), item = item_bytes(weights.dtype);
  const int64_t rows = geometry_.taps() * inputs;
  parallel_items(units() * rows, std::max<int64_t>(1, kPackedElements / columns_), [&](int64_t begin, int64_t end) {
    for (int64_t at = begin; at < end; ++at) {
      const int64_t unit = at / rows, row = at % rows, left = unit % panels_ * columns_, count = std::min(columns_, outputs - left);
      const int64_t from = unit / panels_ * strides.group + left * strides.output + strides.of_tap(geometry_, row / inputs) +
                           row % inputs * strides.input;
      float* const to = packed + at * columns_;
      read(static_cast<const char*>(weights.data) + from * item, strides.output, to, count);
      std::fill(to + count, to + columns_, 0.0f);
    }
  });
}

// Of a band: rows of whole tiles. A pixel's last bit depends on the rows of its tile, so bands do not depend on how many
// threads there are. Each band reads all weights: those that are for threads alone need them in the second cache.
int64_t Plan::most_pixels(const Plane& plane) const {
  const int64_t height = std::max<int64_t>(1, plane.axes[1].count), width = std::max<int64_t>(1, plane.axes[2].count);
  const int64_t others = std::max<int64_t>(1, geometry_.x.batch * plane.axes[0].count * units());
  const bool are_few = units() * panel_elements_ <= kFewWeights;
  const int64_t bands = are_few ? std::max<int64_t>(1, kLeastItems / others) : 1;
  const int64_t rows = std::clamp(height * width / bands, kLeastPixels, kMostPixels) / width;
  const int64_t of_tiles = gemm::kTileRows / std::gcd(width, int64_t{gemm::kTileRows});
  return (rows > of_tiles ? rows / of_tiles * of_tiles : rows) * width;
}

// Below it threads take longer to wake than to work.
bool Plan::is_large(const PlanePlan& plane) const {
  const double pixels = double(geometry_.x.batch * plane.bands.depths() * plane.bands.height() * plane.bands.width());
  const double weights = double(units() * panel_elements_);
  return weights > kManyWeights || 2 * pixels * weights > kManyOperations;
}

void Plan::run_plane(const Launch& launch, int64_t slices) const {
  const Bands& band = launch.plane.bands;
  const int64_t bands = geometry_.x.batch * band.depths() * band.count;
  if (bands == 0 || band.width() == 0 || band.height() == 0) return;
  const int64_t parts = parts_of_bands(bands, units(), slices, kItemsOfSlice);
  parallel_tasks(bands * parts, slices, [&](int64_t task, int slice) {
    const int64_t part = task % parts;
    float* const memory = static_cast<float*>(launch.call.workspace) + packed_elements() + slice * slice_elements();
    run_band(launch, place_of(band, task / parts), units() * part / parts, units() * (part + 1) / parts, memory);
  });
}

void Plan::run_band(const Launch& launch, const BandPlace& place, int64_t first, int64_t end, float* slice) const {
  const Bands& bands = launch.plane.bands;
  Image x = geometry_.x;
  x.data = static_cast<char*>(launch.call.inputs[0].data);
  auto* from = reinterpret_cast<int64_t*>(slice);
  int64_t* to = from + most_pixels_;
  float* sums = reinterpret_cast<float*>(to + most_pixels_);
  const float* base = load_band(x, bands, place, sums + part_pixels_ * geometry_.y.channels + 64);
  const Plane::Axis* axes = bands.plane.axes;
  int64_t pixels = 0;
  for (int64_t row = 0; row < place.rows; ++row) {
    const int64_t read = bands.strides.at(0, row * axes[1].input_step, 0), read_step = bands.strides.at(0, 0, axes[2].input_step);
    const int64_t written = offset_in(geometry_.y, bands, place, row, 0), step = axes[2].step * geometry_.y.strides[2];
    for (int64_t column = 0; column < bands.width(); ++column, ++pixels) {
      from[pixels] = read + column * read_step;
      to[pixels] = written + column * step;
    }
  }
  const int64_t channel = channel_of(first), channels = (end < units() ? channel_of(end) : geometry_.y.channels) - channel;
  for (int64_t start = 0; start < pixels; start += part_pixels_) {
    const Part part{base, from + start, to + start, std::min(part_pixels_, pixels - start), sums};
    for (int64_t unit = first; unit < end; ++unit) run_unit(launch, part, unit);
    if (!launch.results.are_direct()) launch.results.write(bands, place, start, part.pixels, channel, channels, sums + channel);
  }
}

void Plan::run_unit(const Launch& launch, const Part& part, int64_t unit) const {
  const int64_t channel = channel_of(unit), group = unit / panels_;
  const int64_t count = std::min(columns_, (group + 1) * geometry_.group_outputs() - channel);
  float bias[64] = {};
  if (has_bias_) {
    const TensorDesc& given = launch.call.inputs[2];
    const pointwise::ReadRow read = pointwise::reader(pointwise::element_of(given.dtype), pointwise::kFloat32);
    const int64_t stride = given.strides[0];
    read(static_cast<const char*>(given.data) + channel * stride * item_bytes(given.dtype), stride, bias, count);
  }
  float* const sums = part.sums + channel;
  const int64_t stride = geometry_.y.channels;
  Block block{part.base + group * geometry_.group_inputs(), part.from, part.pixels, nullptr, nullptr, 0,
              launch.packed + unit * panel_elements_, columns_, bias, 0, sums, stride, nullptr, count};
  const Run* run = launch.plane.runs.data();
  const Run* const last = run + launch.plane.runs.size();
  do {  // at least once, so that outputs without taps are the bias
    block.begin = run;
    block.depth = 0;
    while (run < last && (block.depth == 0 || block.depth + run->depth <= kMostDepth)) block.depth += run++->depth;
    block.end = run;
    if (block.depth > 0) block.next = block.panel + (run[-1].row + run[-1].depth) * columns_;
    if (run == last && launch.results.are_direct()) {
      block.steps = launch.results.in_registers();
      block.sums = static_cast<float*>(launch.call.outputs[0].data) + channel;
      block.places = part.to;
    }
    run_panel(block);
    block.initial = sums;
    block.initial_stride = stride;
  } while (run < last);
}

Plan plan_of_conv(const OpCall& call) { return {geometry_of_conv(call), 0, call.num_inputs > 2}; }

Plan plan_of_packed(const OpCall& call) {
  return {geometry_of_packed(call), call.inputs[1].shape[3], attrs_of<PackedAttrs>(call).has_bias > 0, steps_of(call)};
}

}  // namespace

std::vector<KernelPtr> host_kernels() {
  using ConvKernel = PlannedKernel<Plan>;
  std::vector<KernelPtr> kernels = depthwise_kernels();
  kernels.push_back(std::make_shared<ConvKernel>(kConv, "conv.host", ConvKernel::Functions{check_conv, plan_of_conv, conv_cost}));
  kernels.push_back(std::make_shared<ConvKernel>(
      kPackedConv, "packed_conv.host", ConvKernel::Functions{check_packed_panels, plan_of_packed, packed_cost}));
  kernels.push_back(winograd_kernel());
  kernels.push_back(weight_gradient_kernel());
  return kernels;
}

}  // namespace npu::conv
