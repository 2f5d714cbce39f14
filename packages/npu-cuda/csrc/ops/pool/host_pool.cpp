#include "ops/pool/host_loops.h"
#include "ops/pool/host_rows.h"
#include "ops/threads.h"

namespace npu::pool {
namespace {

// The channels, where they are side by side in all images; else 1.
int64_t inner_of(std::initializer_list<Image> images) {
  int64_t inner = images.begin()->channels;
  for (const Image& image : images) inner = image.channel_stride == 1 ? inner : 1;
  return inner;
}

// Calls f(outer, depth, height, slice) for each row of an image, with memory of so many bytes for each thread.
template <class F>
void each_row(const OpCall& call, const Image& image, int64_t inner, int64_t slice_bytes, F f) {
  const int64_t depths = image.sizes[0], heights = image.sizes[1], rows = image.batch * (image.channels / inner) * depths * heights;
  const int64_t slices = std::max<int64_t>(1, int64_t(call.workspace_bytes) / slice_bytes);
  const int64_t at_once = 16384 / (image.sizes[2] * inner + 1) + 1;
  parallel_tasks((rows + at_once - 1) / at_once, slices, [&](int64_t task, int slice) {
    char* const memory = static_cast<char*>(call.workspace) + slice * slice_bytes;
    for (int64_t row = task * at_once; row < std::min(rows, (task + 1) * at_once); ++row) {
      f(row / heights / depths, row / heights % depths, row % heights, memory);
    }
  });
}

// Sums or maxima: of the rows of a window, then of their pixels.
template <class Fn, class Lane>
class RowPool {
 public:
  RowPool(const Image& x, const Image& y, std::vector<Taps<Lane>> taps)
      : y_image_(y), inner_(inner_of({x, y})), x_(x, inner_), y_(y, inner_), taps_(std::move(taps)) {}

  int64_t slice_bytes() const { return (2 * x_.numbers() + y_.numbers() + 8) * int64_t{sizeof(Lane)} / 64 * 64 + 64; }

  void run(const OpCall& call) const {
    using Loops = RowLoops<Fn, Lane>;
    static const auto add = widest<Lane, Loops::template Add>();
    static const auto join = widest<Lane, Loops::template Join>();
    const Taps<Lane>& width = taps_[2];
    const Positions<Lane> positions{width.runs.data(), y_.width(), inner_, width.weights.empty() ? nullptr : width.weights.data(), width.most};
    each_row(call, y_image_, inner_, slice_bytes(), [&](int64_t outer, int64_t depth, int64_t height, char* slice) {
      auto* const sum = reinterpret_cast<Lane*>(slice);
      Lane* const buffer = sum + x_.numbers();
      const Lane* row = nullptr;
      int64_t rows = 0;
      const bool is_one = taps_[0].at(depth).count * taps_[1].at(height).count == 1;
      each_tap(depth, height, [&](int64_t d, int64_t h, Lane weight) {
        row = x_.read(outer, d, h, buffer);
        if (!is_one || weight != Lane(1)) add(row, weight, sum, x_.numbers(), rows++ == 0), row = sum;
      });
      Lane* const to = y_.target(outer, depth, height, buffer + x_.numbers());
      if (row) join(row, &positions, to);
      else std::fill(to, to + y_.numbers(), Lane(Fn::start));
      y_.write(outer, depth, height, to);
    });
  }

 private:
  template <class F>
  void each_tap(int64_t depth, int64_t height, F f) const {
    const Run &deep = taps_[0].at(depth), &high = taps_[1].at(height);
    const bool is_weighted = !taps_[0].weights.empty();
    for (int64_t i = 0; i < deep.count; ++i) {
      for (int64_t j = 0; j < high.count; ++j) {
        const Lane weight = is_weighted ? taps_[0].weights_of(depth)[i] * taps_[1].weights_of(height)[j] : Lane(1);
        f(deep.first + i * deep.step, high.first + j * high.step, weight);
      }
    }
  }

  Image y_image_;
  int64_t inner_;
  ImageRows<Lane> x_, y_;
  std::vector<Taps<Lane>> taps_;
};

template <class Lane>
std::vector<Taps<Lane>> windows_of(const Geometry& geometry) {
  std::vector<Taps<Lane>> taps;
  for (const Axis& axis : geometry.axes) taps.emplace_back(axis.count, [&](int64_t at) { return axis.elements<Lane>(at); });
  return taps;
}

template <class Lane>
std::vector<Taps<Lane>> sources_of(const Geometry& geometry) {
  std::vector<Taps<Lane>> taps;
  for (const Axis& axis : geometry.axes) taps.emplace_back(axis.size, [&](int64_t at) { return axis.positions<Lane>(at); });
  return taps;
}

template <class Lane>
RowPool<Sum, Lane> resample_of(const OpCall& call) {
  const auto attrs = attrs_of<ResampleAttrs>(call);
  const Image x = image_of(call.inputs[0], attrs.axes), y = image_of(call.outputs[0], attrs.axes);
  const Geometry geometry = attrs.transposed ? geometry_of(attrs, y, x) : geometry_of(attrs, x, y);
  std::vector<Taps<Lane>> taps = attrs.transposed ? sources_of<Lane>(geometry) : windows_of<Lane>(geometry);
  for (int axis = 0; axis < kAxes; ++axis) {
    taps[size_t(axis)].weigh([&](int64_t at, int64_t of) {
      return attrs.transposed ? geometry.axes[axis].weight<Lane>(of, at) : geometry.axes[axis].weight<Lane>(at, of);
    });
  }
  return {x, y, std::move(taps)};
}

template <class Lane>
Status launch_resample(const OpCall& call) {
  if (call.outputs[0].numel > 0) resample_of<Lane>(call).run(call);
  return {};
}

// Maxima with their places.
template <class Lane>
class PlacePool {
 public:
  using Place = typename PlaceLoops<Lane>::Place;

  explicit PlacePool(const OpCall& call)
      : axes_(attrs_of<Attrs>(call).axes), x_image_(image_of(call.inputs[0], axes_)), y_image_(image_of(call.outputs[0], axes_)),
        places_image_(image_of(call.outputs[1], axes_)), inner_(inner_of({x_image_, y_image_, places_image_})), x_(x_image_, inner_),
        y_(y_image_, inner_), places_(places_image_, inner_), taps_(windows_of<Lane>(geometry_of(attrs_of<Attrs>(call), x_image_, y_image_))) {}

  int64_t slice_bytes() const {
    const int64_t rows = taps_[0].most * taps_[1].most * x_.numbers();
    return (rows * int64_t{sizeof(Lane)} + y_.numbers() * int64_t{sizeof(Lane) + sizeof(Place) + sizeof(int64_t)}) / 64 * 64 + 128;
  }

  void run(const OpCall& call) const {
    static const auto find = widest<Lane, PlaceLoops<Lane>::template Find>();
    const Positions<Lane> positions{taps_[2].runs.data(), y_.width(), inner_, nullptr, 0};
    each_row(call, y_image_, inner_, slice_bytes(), [&](int64_t outer, int64_t depth, int64_t height, char* slice) {
      auto* const numbers = reinterpret_cast<int64_t*>(slice);
      auto* const best = reinterpret_cast<Lane*>(numbers + y_.numbers());
      auto* const found = reinterpret_cast<Place*>(best + y_.numbers());
      const Window<Lane> window = window_at(outer, depth, height, reinterpret_cast<Lane*>(found + y_.numbers()));
      Lane* const to = y_.target(outer, depth, height, best);
      find(&window, &positions, to, found);
      y_.write(outer, depth, height, to);
      int64_t* const places = places_.target(outer, depth, height, numbers);
      std::copy_n(found, y_.numbers(), places);
      places_.write(outer, depth, height, places);
    });
  }

 private:
  Window<Lane> window_at(int64_t outer, int64_t depth, int64_t height, Lane* buffer) const {
    const Run &deep = taps_[0].at(depth), &high = taps_[1].at(height);
    const auto place_of = [&](int64_t d, int64_t h) { return (d * x_image_.sizes[1] + h) * x_image_.sizes[2]; };
    Window<Lane> window{{}, {}, place_of(deep.first, high.first)};
    for (int64_t d = deep.first; d < deep.end(); d += deep.step) {
      for (int64_t h = high.first; h < high.end(); h += high.step, buffer += x_.numbers()) {
        window.rows.push_back(x_.read(outer, d, h, buffer));
        window.places.push_back(place_of(d, h));
      }
    }
    return window;
  }

  int axes_;
  Image x_image_, y_image_, places_image_;
  int64_t inner_;
  ImageRows<Lane> x_, y_;
  ImageRows<int64_t> places_;
  std::vector<Taps<Lane>> taps_;
};

template <class Lane>
RowPool<Max, Lane> max_pool_of(const OpCall& call) {
  const auto attrs = attrs_of<Attrs>(call);
  const Image x = image_of(call.inputs[0], attrs.axes), y = image_of(call.outputs[0], attrs.axes);
  return {x, y, windows_of<Lane>(geometry_of(attrs, x, y))};
}

template <class Lane>
Status launch_max_pool(const OpCall& call) {
  if (call.outputs[0].numel == 0) return {};
  if (call.num_outputs == 2) PlacePool<Lane>(call).run(call);
  else max_pool_of<Lane>(call).run(call);
  return {};
}

template <class Lane>
class PlaceGradient {
 public:
  explicit PlaceGradient(const OpCall& call)
      : axes_(attrs_of<Attrs>(call).axes), dy_image_(image_of(call.inputs[0], axes_)), places_image_(image_of(call.inputs[1], axes_)),
        dx_image_(image_of(call.outputs[0], axes_)), inner_(inner_of({dy_image_, places_image_, dx_image_})), dy_(dy_image_, inner_),
        dx_(dx_image_, inner_), places_(places_image_, inner_),
        taps_(sources_of<Lane>(geometry_of(attrs_of<Attrs>(call), dx_image_, dy_image_))) {}

  int64_t slice_bytes() const {
    return (dy_.numbers() * int64_t{sizeof(Lane) + sizeof(int64_t)} + dx_.numbers() * int64_t{sizeof(Lane)}) / 64 * 64 + 64;
  }

  void run(const OpCall& call) const {
    if (may_scatter(attrs_of<Attrs>(call))) return scatter(call);
    const Positions<Lane> positions{taps_[2].runs.data(), dx_.width(), inner_, nullptr, 0};
    each_row(call, dx_image_, inner_, slice_bytes(), [&](int64_t outer, int64_t depth, int64_t height, char* slice) {
      auto* const numbers = reinterpret_cast<int64_t*>(slice);
      auto* const buffer = reinterpret_cast<Lane*>(numbers + dy_.numbers());
      Lane* const to = dx_.target(outer, depth, height, buffer + dy_.numbers());
      std::fill(to, to + dx_.numbers(), Lane(0));
      const Run &deep = taps_[0].at(depth), &high = taps_[1].at(height);
      const int64_t first = (depth * dx_image_.sizes[1] + height) * dx_image_.sizes[2];
      for (int64_t d = deep.first; d < deep.end(); ++d) {
        for (int64_t h = high.first; h < high.end(); ++h) {
          run_simd<AddWhere<Lane>>(dy_.read(outer, d, h, buffer), places_.read(outer, d, h, numbers), &positions, first, dy_.width(), to);
        }
      }
      dx_.write(outer, depth, height, to);
    });
  }

 private:
  // It is faster for channels by themselves. Of dilated windows, places between their elements count as well.
  bool may_scatter(const Attrs& attrs) const {
    const bool is_dilated = std::ranges::any_of(attrs.dilation, [](int32_t d) { return d != 1; });
    return inner_ == 1 && !is_dilated && dx_.is_one_array() && outers() >= thread_count();
  }
  int64_t outers() const { return dx_image_.batch * (dx_image_.channels / inner_); }

  // Each thread adds the numbers of some images to their places, in the order in which the other way adds them.
  void scatter(const OpCall& call) const {
    const std::vector<Taps<Lane>> windows = windows_of<Lane>(geometry_of(attrs_of<Attrs>(call), dx_image_, dy_image_));
    std::vector<Pixel> pixels;  // by place
    for (int64_t d = 0; d < dx_image_.sizes[0]; ++d) {
      for (int64_t h = 0; h < dx_image_.sizes[1]; ++h) {
        for (int64_t w = 0; w < dx_image_.sizes[2]; ++w) pixels.push_back({d, h, w});
      }
    }
    const int64_t slices = std::max<int64_t>(1, int64_t(call.workspace_bytes) / slice_bytes());
    const int64_t at_once = 16384 / int64_t(pixels.size()) + 1;
    parallel_tasks((outers() + at_once - 1) / at_once, slices, [&](int64_t task, int slice) {
      auto* const numbers = reinterpret_cast<int64_t*>(static_cast<char*>(call.workspace) + slice * slice_bytes());
      auto* const buffer = reinterpret_cast<Lane*>(numbers + dy_.numbers());
      for (int64_t outer = task * at_once; outer < std::min(outers(), (task + 1) * at_once); ++outer) {
        Lane* const to = dx_.target(outer, 0, 0, nullptr);
        std::fill_n(to, pixels.size(), Lane(0));
        for (int64_t row = 0; row < dy_image_.sizes[0] * dy_image_.sizes[1]; ++row) {
          const int64_t depth = row / dy_image_.sizes[1], height = row % dy_image_.sizes[1];
          const Row from{dy_.read(outer, depth, height, buffer), places_.read(outer, depth, height, numbers),
                         windows[0].at(depth), windows[1].at(height)};
          scatter_row(from, windows[2], pixels, to);
        }
      }
    });
  }

  // Of an image.
  struct Pixel {
    int64_t depth, height, width;
  };
  struct Row {
    const Lane* dy;
    const int64_t* places;
    const Run &deep, &high;  // of its windows
  };

  void scatter_row(Row from, const Taps<Lane>& width, const std::vector<Pixel>& pixels, Lane* to) const {
    for (int64_t at = 0; at < dy_.width(); ++at) {
      const auto place = static_cast<size_t>(from.places[at]);
      if (place >= pixels.size()) continue;
      const Pixel& pixel = pixels[place];
      const bool is_inside = from.deep.holds(pixel.depth) && from.high.holds(pixel.height) && width.at(at).holds(pixel.width);
      if (is_inside) to[place] += from.dy[at];
    }
  }

  int axes_;
  Image dy_image_, places_image_, dx_image_;
  int64_t inner_;
  ImageRows<Lane> dy_, dx_;
  ImageRows<int64_t> places_;
  std::vector<Taps<Lane>> taps_;
};

template <class Lane>
Status launch_max_pool_bwd(const OpCall& call) {
  if (call.outputs[0].numel > 0) PlaceGradient<Lane>(call).run(call);
  return {};
}

// Returns the bytes of a slice for each thread; 0 for a tensor without elements.
template <class Pool>
uint64_t bytes_for(const OpCall& call, Pool make) {
  return call.outputs[0].numel == 0 ? 0 : uint64_t(make(call).slice_bytes() * thread_count());
}

template <class Lane>
void add_kernels(const std::string& name, std::vector<KernelPtr>* kernels) {
  const auto add = [&](OpKind kind, const char* op, KernelFunctions functions) {
    kernels->push_back(make_kernel({kind, std::string(op) + "." + name + ".host", DeviceType::Host}, functions));
  };
  add(kMaxPool, "max_pool", {supported<check_max_pool, Lane>, launch_max_pool<Lane>, cost, [](const OpCall& call) {
    if (call.num_outputs == 2) return bytes_for(call, [](const OpCall& one) { return PlacePool<Lane>(one); });
    return bytes_for(call, max_pool_of<Lane>);
  }});
  add(kMaxPoolBwd, "max_pool_bwd", {supported<check_max_pool_bwd, Lane>, launch_max_pool_bwd<Lane>, cost, [](const OpCall& call) {
    return bytes_for(call, [](const OpCall& one) { return PlaceGradient<Lane>(one); });
  }});
  add(kResample, "resample", {supported<check_resample, Lane>, launch_resample<Lane>, cost,
                              [](const OpCall& call) { return bytes_for(call, resample_of<Lane>); }});
}

}  // namespace

std::vector<KernelPtr> host_kernels() {
  std::vector<KernelPtr> kernels;
  add_kernels<float>("f32", &kernels);
  add_kernels<double>("f64", &kernels);
  return kernels;
}

}  // namespace npu::pool
