// AxisMap, Triangle, OneHot and Arange on the host.
#include "ops/host_copy.h"
#include "ops/host_simd.h"
#include "ops/index/host_index.h"
#include "ops/index/maps.h"
#include "ops/pointwise/elements.h"

namespace npu::indexing {
namespace {

using pointwise::Element;
using pointwise::element_of;

// Coordinates of the last axis that are read alike: x from `source` on, stepping by `step`; -1 for what
// fills.
struct Segment {
  int64_t source, step, size;
};

// Steps from `at` until a limit of the range from `low` to `high` is passed; `most` if that is later.
int64_t steps_inside(int64_t at, int64_t step, int64_t low, int64_t high, int64_t most) {
  if (step == 0) return most;
  return std::min(most, step > 0 ? (high - 1 - at) / step + 1 : (at - low) / -step + 1);
}

// The next segment of the last axis, from coordinate c on.
Segment segment_at(const MapLayout& map, int64_t c) {
  constexpr int64_t kFar = INT64_MAX / 4;
  const int last = map.rank - 1;
  const int64_t size = map.sizes[last], step = map.step[last], at = map.start[last] + step * c;
  const int64_t source = source_of(map.mode, at, size), most = map.shape[last] - c;
  const bool is_inside = at >= 0 && at < size;
  if (is_inside || map.mode == Outside::Wrap)
    return {source, step, steps_inside(source, step, 0, size, most)};
  const int64_t low = at < 0 ? -kFar : size, high = at < 0 ? 0 : kFar;
  return {source, map.mode == Outside::Reflect ? -step : 0, steps_inside(at, step, low, high, most)};
}

template <class T>
[[gnu::always_inline]] inline void copy_segment(const Segment& part, const T* x, const T* fill, T* y) {
  const T* from = x + part.source;
  if (part.source < 0 && part.size == 1) *y = *fill;
  else if (part.source < 0) std::fill_n(y, part.size, *fill);
  else if (part.step == 1)
    copy_row(reinterpret_cast<const char*>(from), reinterpret_cast<char*>(y), part.size * int64_t{sizeof(T)});
  else if (part.step == -1) std::reverse_copy(from - part.size + 1, from + 1, y);
  else
    for (int64_t i = 0; i < part.size; ++i) y[i] = from[i * part.step];
}

// The segments of the last axis, which are those of each row; of many, the first ones.
struct Segments {
  explicit Segments(const MapLayout& map) {
    for (const int64_t n = map.shape[map.rank - 1]; covered < n && count < kMost; covered += parts[count++].size) {
      parts[count] = segment_at(map, covered);
    }
  }
  static constexpr int kMost = 8;
  Segment parts[kMost];
  int count = 0;
  int64_t covered = 0;
};

// Walks the rows of y, with the place in x where each is read.
class RowSource {
 public:
  RowSource(const MapLayout& map, int64_t row) : map_(map), inner_(map.rank - 2) {
    for (int axis = inner_; axis >= 0; row /= map.shape[axis--]) {
      place_[axis] = row % map.shape[axis];
      find(axis);
    }
    find_outer();
  }
  // -1 where the row is filled.
  int64_t offset() const {
    if (inner_ < 0) return 0;
    return outer_ < 0 || found_[inner_] < 0 ? -1 : outer_ + found_[inner_];
  }
  void advance() {
    for (int axis = inner_; axis >= 0; --axis) {
      if (++place_[axis] == map_.shape[axis]) place_[axis] = 0;
      find(axis);
      if (place_[axis] == 0) continue;
      if (axis < inner_) find_outer();
      return;
    }
  }

 private:
  void find(int axis) {
    const int64_t at = map_.start[axis] + map_.step[axis] * place_[axis], size = map_.sizes[axis];
    const int64_t source = at >= 0 && at < size ? at : source_of(map_.mode, at, size);
    found_[axis] = source < 0 ? -1 : source * map_.x_strides[axis];
  }

  void find_outer() {
    outer_ = 0;
    for (int axis = 0; axis < inner_; ++axis) {
      if (found_[axis] < 0) outer_ = -1;
      if (outer_ >= 0) outer_ += found_[axis];
    }
  }

  const MapLayout& map_;
  const int inner_;  // the axis of the rows
  int64_t outer_;    // where those before it are read
  int64_t place_[NPU_MAX_RANK], found_[NPU_MAX_RANK];
};

template <class T>
struct MapRows {
  // A row of x several times: what is written is copied behind itself, twice as much each time.
  [[gnu::always_inline]] static inline void repeat(const Segments& segments, const T* x, int64_t size, T* to, int64_t n) {
    if (size == 1) {
      std::fill_n(to, n, *x);
      return;
    }
    int64_t done = 0;
    for (int i = 0; done < size; done += segments.parts[i++].size) copy_segment<T>(segments.parts[i], x, nullptr, to + done);
    for (done -= done % size; done < n;) {
      const int64_t count = std::min(done, n - done);
      copy_row(reinterpret_cast<const char*>(to), reinterpret_cast<char*>(to + done), count * int64_t{sizeof(T)});
      done += count;
    }
  }

  [[gnu::always_inline]] static inline void run(const MapLayout* map, const Segments* segments, const T* x, const T* fill, T* y,
                                                int64_t begin, int64_t end) {
    const int last = map->rank - 1;
    const int64_t n = map->shape[last], size = map->sizes[last];
    const bool is_repeated = map->mode == Outside::Wrap && map->step[last] == 1 && n >= 2 * size;
    RowSource source(*map, begin);
    T* to = y + begin * n;
    for (int64_t row = begin; row < end; ++row, source.advance()) {
      const int64_t offset = source.offset();
      if (offset < 0) {
        to = std::fill_n(to, n, *fill);
        continue;
      }
      if (is_repeated) {
        repeat(*segments, x + offset, size, to, n);
        to += n;
        continue;
      }
      for (int i = 0; i < segments->count; to += segments->parts[i++].size) {
        copy_segment(segments->parts[i], x + offset, fill, to);
      }
      for (int64_t c = segments->covered; c < n;) {
        const Segment part = segment_at(*map, c);
        copy_segment(part, x + offset, fill, to);
        c += part.size;
        to += part.size;
      }
    }
  }
};

template <class T>
void map_items(const OpCall& call, const MapLayout& map) {
  const auto* x = static_cast<const T*>(call.inputs[0].data);
  const auto* fill = call.num_inputs > 1 ? static_cast<const T*>(call.inputs[1].data) : nullptr;
  auto* y = static_cast<T*>(call.outputs[0].data);
  const int64_t n = map.shape[map.rank - 1];
  const Segments segments(map);
  parallel_rows(call.outputs[0].numel / n, n, [&](int64_t begin, int64_t end) {
    run_simd<MapRows<T>>(&map, &segments, x, fill, y, begin, end);
  });
}

// Trailing axes that are copied as a whole become part of an item; without axes there is one of size 1.
MapLayout merge_axes(MapLayout map) {
  const auto is_whole = [&](int axis) {
    return map.shape[axis] == map.sizes[axis] && map.start[axis] == 0 &&
           (map.shape[axis] == 1 || map.step[axis] == 1);
  };
  while (map.rank > 1 && is_whole(map.rank - 1)) {
    const int last = map.rank - 1, outer = last - 1;
    if (map.step[outer] != 1) break;
    if (map.mode != Outside::Nothing && map.mode != Outside::Fill && map.mode != Outside::Wrap &&
        !is_whole(outer))
      break;
    map.start[outer] *= map.sizes[last];
    map.shape[outer] *= map.sizes[last];
    map.sizes[outer] *= map.sizes[last];
    map.x_strides[outer] = 1;
    --map.rank;
  }
  if (map.rank != 0) return map;
  map.rank = 1;
  map.shape[0] = map.sizes[0] = map.x_strides[0] = map.step[0] = 1;
  return map;
}

Status launch_map(const OpCall& call) {
  if (call.outputs[0].numel == 0) return {};
  const MapLayout map = merge_axes(layout_of_map(call));
  return with_item(call.inputs[0].dtype,
                   [&](auto item) { return map_items<decltype(item)>(call, map), Status(); });
}

template <class T>
void triangle(const OpCall& call, const TriangleAttrs& attrs) {
  const TensorDesc& x = call.inputs[0];
  const int64_t rows = x.shape[x.rank - 2], n = x.shape[x.rank - 1];
  const int64_t diagonal = std::clamp(attrs.diagonal, -rows, n);  // farther ones leave as much
  const auto* from = static_cast<const T*>(x.data);
  auto* to = static_cast<T*>(call.outputs[0].data);
  parallel_rows(x.numel / n, n, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      // The lower part ends after the diagonal, and the upper one begins at it.
      const int64_t at = row % rows + diagonal,
                    split = std::clamp<int64_t>(at + (attrs.upper ? 0 : 1), 0, n);
      const int64_t kept = attrs.upper ? split : 0, zero = attrs.upper ? 0 : split;
      const int64_t zeros = attrs.upper ? split : n - split;
      std::memcpy(to + row * n + kept, from + row * n + kept, size_t(n - zeros) * sizeof(T));
      std::memset(static_cast<void*>(to + row * n + zero), 0, size_t(zeros) * sizeof(T));
    }
  });
}

Status launch_triangle(const OpCall& call) {
  if (call.outputs[0].numel == 0) return {};
  const TriangleAttrs attrs = attrs_of<TriangleAttrs>(call);
  return with_item(call.inputs[0].dtype,
                   [&](auto item) { return triangle<decltype(item)>(call, attrs), Status(); });
}

Status launch_one_hot(const OpCall& call) {
  const TensorDesc &index = call.inputs[0], &y = call.outputs[0];
  const int64_t classes = y.shape[y.rank - 1];
  NPU_TRY(check_index(index, index.rank, classes, false));
  if (y.numel == 0) return {};
  std::memset(y.data, 0, size_t(nbytes(y)));
  return with_index(index, [&](auto number) {
    const auto* places = static_cast<const decltype(number)*>(index.data);
    for (int64_t i = 0; i < index.numel; ++i) static_cast<int64_t*>(y.data)[i * classes + places[i]] = 1;
    return Status();
  });
}

template <class T, class Number>
void arange(const TensorDesc& y, Number start, Number step) {
  auto* to = static_cast<T*>(y.data);
  parallel_rows(y.numel, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) to[i] = static_cast<T>(start + step * static_cast<Number>(i));
  });
}

Status launch_arange(const OpCall& call) {
  const auto [start, step] = attrs_of<ArangeAttrs>(call);
  const TensorDesc& y = call.outputs[0];
  const auto first = static_cast<int64_t>(start), by = static_cast<int64_t>(step);
  switch (element_of(y.dtype)) {
    case Element::Float32: return arange<float>(y, start, step), Status();
    case Element::Float64: return arange<double>(y, start, step), Status();
    case Element::Int64: return arange<int64_t>(y, first, by), Status();
    case Element::Int32: return arange<int32_t>(y, first, by), Status();
    case Element::Int16: return arange<int16_t>(y, first, by), Status();
    case Element::Int8: return arange<int8_t>(y, first, by), Status();
    default: return arange<uint8_t>(y, first, by), Status();
  }
}

}  // namespace

std::vector<KernelPtr> making_host_kernels() {
  return {make_kernel({kAxisMap, "axis_map.any.host", DeviceType::Host}, {axis_map_supported, launch_map}),
          make_kernel({kTriangle, "triangle.any.host", DeviceType::Host}, {triangle_supported, launch_triangle}),
          make_kernel({kOneHot, "one_hot.any.host", DeviceType::Host}, {one_hot_supported, launch_one_hot}),
          make_kernel({kArange, "arange.any.host", DeviceType::Host}, {arange_supported, launch_arange})};
}

}  // namespace npu::indexing
