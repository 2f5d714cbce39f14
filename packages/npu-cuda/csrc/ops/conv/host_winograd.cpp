// 3 x 3 convolutions of stride 1 by Winograd's algorithm: outputs are computed in squares of tile x tile pixels, each from
// a patch of (tile + 2) x (tile + 2). Patch P and kernel K are transformed to as many points, multiplied there, and
// transformed back: A^T ((G K G^T) * (B^T P B)) A. At each point the sums over inputs are a product of matrices, of
// squares and panels; G K G^T is in the panels. Source: Lavin and Gray, "Fast Algorithms for Convolutional Neural
// Networks" (2015); the points are 0, 1, -1, for tiles of 4 also 1/2 and -2, and infinity.
#include <algorithm>

#include "ops/conv/depthwise.h"
#include "ops/conv/steps.h"
#include "ops/gemm/host_block.h"
#include "ops/host_simd.h"
#include "ops/planned_kernel.h"
#include "ops/pointwise/vector_instructions.h"
#include "ops/threads.h"

namespace npu::conv {
namespace {

constexpr int64_t kMostNumbers = 131072;  // of the transformed patches of a band, which the second cache holds
constexpr int64_t kItemsOfSlice = 2;      // at least; each part of a band transforms its patches again
constexpr int64_t kWidth = 64;            // of panels

template <int kTile>
struct Matrices;

template <>
struct Matrices<2> {
  static constexpr float patch[4][4] = {{-1, 0, 1, 0}, {0, 1, 1, 0}, {0, -1, 1, 0}, {0, -1, 0, 1}};  // B^T
  static constexpr float result[2][4] = {{1, 1, 1, 0}, {0, 1, -1, 1}};                               // A^T
};

template <>
struct Matrices<4> {
  static constexpr float patch[6][6] = {{1, -1.5f, -2, 1.5f, 1, 0},  {0, -1, 0.5f, 2.5f, 1, 0}, {0, 1, -2.5f, 0.5f, 1, 0},
                                        {0, -2, -1, 2, 1, 0},        {0, 0.5f, -1, -0.5f, 1, 0}, {0, 1, -1.5f, -2, 1.5f, 1}};
  static constexpr float result[4][6] = {
      {1, 1, 1, 1, 1, 0}, {0, 1, -1, 0.5f, -2, 0}, {0, 1, 1, 0.25f, 4, 0}, {0, 1, -1, 0.125f, -8, 1}};
};

// Channels of one square.
struct Square {
  const float* const* pixels;  // of a patch, or of the points of a square
  float* const* to;            // of the points, or of the pixels of a square; null where it is beyond the image
  const float* bias;
  int64_t channels;            // whole vectors
  const fusion::RegisterSteps* steps = nullptr;
};

// Rows times columns of a square matrix of vectors, in place of numbers: matrix * square * matrix^T.
template <int kBytes, int kTile, bool kIsPatch>
struct Transform {
  using V = typename pointwise::VectorOf<float, kBytes>::type;
  using Unaligned = typename pointwise::VectorOf<float, kBytes>::unaligned;
  static constexpr int kIn = kTile + 2, kOut = kIsPatch ? kTile + 2 : kTile;

  // The row of the matrix times numbers, without the zeros and ones, which the compiler knows.
  static NPU_INLINE V sum(int row, const V* numbers) {
    V sum{};
#pragma GCC unroll 6
    for (int k = 0; k < kIn; ++k) {
      const float factor = kIsPatch ? Matrices<kTile>::patch[row][k] : Matrices<kTile>::result[row % kTile][k];
      if (factor == 1) sum += numbers[k];
      else if (factor == -1) sum -= numbers[k];
      else if (factor != 0) sum += factor * numbers[k];
    }
    return sum;
  }

  static NPU_INLINE void finish(const fusion::RegisterSteps& steps, const float* to, V* result) {
    if (steps.addend > 0) *result += *reinterpret_cast<const Unaligned*>(steps.addend_of(to));
    steps.activate([&](auto f) { *result = f(pointwise::Value<V>::of(*result)).raw; });
  }

  static NPU_INLINE void run(const Square* square) {
    for (int64_t channel = 0; channel < square->channels; channel += kBytes / int64_t{sizeof(float)}) {
      V half[kOut][kIn];
#pragma GCC unroll 6
      for (int j = 0; j < kIn; ++j) {
        V column[kIn];
#pragma GCC unroll 6
        for (int i = 0; i < kIn; ++i) column[i] = *reinterpret_cast<const Unaligned*>(square->pixels[i * kIn + j] + channel);
#pragma GCC unroll 6
        for (int i = 0; i < kOut; ++i) half[i][j] = sum(i, column);
      }
      V bias{};
      if constexpr (!kIsPatch) bias = *reinterpret_cast<const Unaligned*>(square->bias + channel);
#pragma GCC unroll 6
      for (int i = 0; i < kOut; ++i) {
#pragma GCC unroll 6
        for (int j = 0; j < kOut; ++j) {
          V result = sum(j, half[i]);
          float* const to = square->to[i * kOut + j];
          if (!to) continue;
          if constexpr (!kIsPatch) {
            result += bias;
            if (square->steps) finish(*square->steps, to + channel, &result);
          }
          *reinterpret_cast<Unaligned*>(to + channel) = result;
        }
      }
    }
  }
};

template <int kTile, bool kIsPatch>
void transform_with(const Square& square) {
#if defined(__x86_64__)
  if (has_avx512()) return run_with_avx512<Transform<64, kTile, kIsPatch>>(&square);
  if (has_avx2()) return run_with_avx2<Transform<32, kTile, kIsPatch>>(&square);
#endif
  Transform<16, kTile, kIsPatch>::run(&square);
}

template <bool kIsPatch>
void transform(int64_t tile, const Square& square) {
  tile == 2 ? transform_with<2, kIsPatch>(square) : transform_with<4, kIsPatch>(square);
}

constexpr int kMostPoints = 36;

class Plan {
 public:
  explicit Plan(const OpCall& call)
      : geometry_(geometry_of_packed(call)), tile_(attrs_of<PackedAttrs>(call).winograd_tile), steps_(steps_of(call)) {
    const Plane plane = planes_of(geometry_)[0];
    bands_ = bands_of(geometry_, plane, 1, true);
    across_ = (bands_.width() + tile_ - 1) / tile_;
    const int64_t down = (bands_.height() + tile_ - 1) / tile_;
    const int64_t most = std::max(kMostNumbers / (points() * geometry_.x.channels), kLeastSquares) / std::max<int64_t>(1, across_);
    const int64_t rows = std::clamp<int64_t>(most, 1, std::max<int64_t>(1, down));
    bands_.rows = rows * tile_;
    bands_.count = (down + rows - 1) / rows;
    squares_ = rows * across_;
  }

  uint64_t workspace_bytes() const {
    return uint64_t(sizeof(float) * (shared_elements() + thread_count() * slice_elements()));
  }

  void run(const OpCall& call) const {
    auto* shared = static_cast<float*>(call.workspace);
    std::fill(shared, shared + shared_elements(), 0.0f);
    if (attrs_of<PackedAttrs>(call).has_bias) {
      pointwise::reader(pointwise::element_of(kFloat32), pointwise::kFloat32)(call.inputs[2].data, call.inputs[2].strides[0],
                                                                         shared + geometry_.x.channels, geometry_.y.channels);
    }
    const int64_t slices = (int64_t(call.workspace_bytes / sizeof(float)) - shared_elements()) / slice_elements();
    const Results results(call, geometry_, steps_.get());
    const int64_t bands = geometry_.x.batch * bands_.count;
    const int64_t parts = parts_of_bands(bands, panels(), slices, kItemsOfSlice);
    parallel_tasks(bands * parts, slices, [&](int64_t task, int slice) {
      const int64_t part = task % parts;
      run_band(call, results, place_of(bands_, task / parts), panels() * part / parts, panels() * (part + 1) / parts,
               shared + shared_elements() + slice * slice_elements());
    });
  }

 private:
  static constexpr int64_t kLeastSquares = 16;

  int64_t points() const { return (tile_ + 2) * (tile_ + 2); }
  int64_t panels() const { return geometry_.y.channels / kWidth; }
  // Zeros in place of pixels around an image, and the bias.
  int64_t shared_elements() const { return geometry_.x.channels + geometry_.y.channels; }
  // Returns the elements of one thread: transformed patches, products by a panel, and sums.
  int64_t slice_elements() const {
    return points() * squares_ * (geometry_.x.channels + kWidth) + bands_.rows * bands_.width() * geometry_.y.channels;
  }

  void run_band(const OpCall& call, const Results& results, const BandPlace& place, int64_t first, int64_t end, float* slice) const;
  void load_patch(const OpCall& call, const BandPlace& place, int64_t square, float* patches) const;
  void store_square(const OpCall& call, const Results& results, const BandPlace& place, int64_t square, int64_t panel,
                    const float* products, float* sums) const;

  Geometry geometry_;  // but for addresses
  int64_t tile_;
  std::shared_ptr<const Steps> steps_;
  Bands bands_;
  int64_t across_ = 0, squares_ = 0;  // of a row, and of a band
};

void Plan::load_patch(const OpCall& call, const BandPlace& place, int64_t square, float* patches) const {
  const auto* zeros = static_cast<const float*>(call.workspace);
  const Image& x = geometry_.x;
  const auto* image = static_cast<const float*>(call.inputs[0].data) + place.image * x.batch_stride;
  const int64_t top = place.first_row + square / across_ * tile_ - geometry_.padding[1];
  const int64_t left = square % across_ * tile_ - geometry_.padding[2], side = tile_ + 2;
  const float* pixels[kMostPoints];
  float* to[kMostPoints];
  for (int64_t i = 0; i < side; ++i) {
    const bool is_row = top + i >= 0 && top + i < x.sizes[1];
    for (int64_t j = 0; j < side; ++j) {
      const bool is_inside = is_row && left + j >= 0 && left + j < x.sizes[2];
      pixels[i * side + j] = is_inside ? image + (top + i) * x.strides[1] + (left + j) * x.strides[2] : zeros;
      to[i * side + j] = patches + ((i * side + j) * squares_ + square) * x.channels;
    }
  }
  transform<true>(tile_, {pixels, to, nullptr, x.channels});
}

// `sums`: of the band, of all channels; null: the result itself.
void Plan::store_square(const OpCall& call, const Results& results, const BandPlace& place, int64_t square, int64_t panel,
                        const float* products, float* sums) const {
  const Image& y = geometry_.y;
  const float* bias = static_cast<const float*>(call.workspace) + geometry_.x.channels + panel * kWidth;
  const int64_t top = square / across_ * tile_, left = square % across_ * tile_;
  const float* of_points[kMostPoints];
  float* to[kMostPoints] = {};
  for (int64_t point = 0; point < points(); ++point) of_points[point] = products + (point * squares_ + square) * kWidth;
  for (int64_t i = 0; i < tile_ && top + i < place.rows; ++i) {
    for (int64_t j = 0; j < tile_ && left + j < bands_.width(); ++j) {
      float* pixel = sums ? sums + ((top + i) * bands_.width() + left + j) * y.channels
                          : static_cast<float*>(call.outputs[0].data) + offset_in(y, bands_, place, top + i, left + j);
      to[i * tile_ + j] = pixel + panel * kWidth;
    }
  }
  transform<false>(tile_, {of_points, to, bias, kWidth, sums ? nullptr : results.in_registers()});
}

void Plan::run_band(const OpCall& call, const Results& results, const BandPlace& place, int64_t first, int64_t end,
                    float* slice) const {
  const int64_t inputs = geometry_.x.channels, squares = (place.rows + tile_ - 1) / tile_ * across_;
  float* patches = slice;
  float* products = patches + points() * squares_ * inputs;
  float* sums = products + points() * squares_ * kWidth;
  const auto* panel_data = static_cast<const float*>(call.inputs[1].data);
  for (int64_t square = 0; square < squares; ++square) load_patch(call, place, square, patches);
  const gemm::BlockLoops& loops = gemm::block_loops(pointwise::element_of(kFloat32));
  for (int64_t panel = first; panel < end; ++panel) {
    for (int64_t point = 0; point < points(); ++point) {
      const float* const of_point = panel_data + (point * panels() + panel) * inputs * kWidth;
      loops.multiply({.rows = patches + point * squares_ * inputs, .row_stride = inputs,
                      .panel = of_point, .panel_stride = kWidth,
                      .start = nullptr, .start_stride = 0, .out = products + point * squares_ * kWidth, .out_stride = kWidth,
                      .num_rows = squares, .columns = kWidth, .depth = inputs, .next = of_point + panels() * inputs * kWidth});
    }
    for (int64_t square = 0; square < squares; ++square) {
      store_square(call, results, place, square, panel, products, results.are_direct() ? nullptr : sums);
    }
  }
  if (results.are_direct()) return;
  const int64_t channel = first * kWidth;
  results.write(bands_, place, 0, place.rows * bands_.width(), channel, (end - first) * kWidth, sums + channel);
}

Plan plan_of(const OpCall& call) { return Plan(call); }

}  // namespace

KernelPtr winograd_kernel() {
  using Functions = PlannedKernel<Plan>::Functions;
  return std::make_shared<PlannedKernel<Plan>>(kPackedConv, "packed_conv.winograd.host",
                                               Functions{check_packed_winograd, plan_of, packed_cost});
}

}  // namespace npu::conv
