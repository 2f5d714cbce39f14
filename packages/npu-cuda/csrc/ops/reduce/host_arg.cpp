#include "ops/reduce/arg.h"
#include "ops/reduce/host_elements.h"
#include "ops/reduce/host_kernels.h"
#include "ops/threads.h"

namespace npu::reduce {
namespace {

constexpr int64_t kRun = 256;  // results at a time
constexpr int64_t kExactInFloat = int64_t{1} << 24;

// The places of n columns as numbers, after row `place` is taken into them.
template <class Fn, class Lane, int kBytes>
struct ColumnPlaces {
  using All = Vectors<typename Fn::Value, Lane, kBytes>;
  using V = typename All::V;

  static NPU_INLINE void run(const Lane* x, double place, Lane* best, Lane* places, int64_t n) {
    for (int64_t i = 0; i < n; i += All::kLanes) {
      const int64_t lanes = std::min<int64_t>(All::kLanes, n - i);
      const V now = All::load(best + i);
      const V item = lanes < All::kLanes ? All::load(x + i, lanes) : All::load(x + i);
      const auto is_nan = item != item && now == now;
      const auto is_first = is_nan || (std::is_same_v<Fn, Argmax> ? item > now : item < now);
      All::store(select(is_first, item, now), best + i);
      All::store(select(is_first, V(place), All::load(places + i)), places + i);
    }
  }
};

template <class Fn, class Lane>
struct HostArg {
  Pass<Lane> values;
  void (*columns)(const Lane* x, double place, Lane* best, Lane* places, int64_t n);
};

template <class Fn, class Lane>
struct ArgLoops {
  template <int kBytes>
  using Columns = ColumnPlaces<Fn, Lane, kBytes>;
};

template <class Fn, class Lane>
HostArg<Fn, Lane> host_arg_of() {
  return {pass_of<typename Fn::Value, Lane>(), widest<Lane, ArgLoops<Fn, Lane>::template Columns>()};
}

// The first of n numbers that is `wanted`, which one of them is; NaN is NaN.
template <class Lane>
int64_t place_of(const Lane* x, Lane wanted) {
  int64_t i = 0;
  while (x[i] != wanted && (x[i] == x[i] || wanted == wanted)) ++i;
  return i;
}

template <class Fn, class Lane>
class Places {
 public:
  Places(const HostArg<Fn, Lane>* arg, const OpCall& call, const Geometry* geometry)
      : arg_(*arg), geometry_(*geometry), x_(call.inputs[0], &geometry->reduced),
        y_(call.outputs[0], *geometry, kInt64) {}

  bool has_columns() const { return geometry_.has_columns() && geometry_.reduced.numel <= kExactInFloat; }

  void run(int64_t begin, int64_t end) const {
    each_run(geometry_.kept, begin, end, kRun, [this](const Cursor& at, int64_t n) {
      int64_t places[kRun];
      if (has_columns()) {
        columns(at.offset(kOfInput), places, n);
      } else {
        const int64_t stride = geometry_.kept.strides[kOfInput][0];
        for (int64_t i = 0; i < n; ++i) places[i] = place_in_row(at.offset(kOfInput) + i * stride);
      }
      y_.put(places, at, n);
    });
  }

 private:
  // The best of each block decides whether its place is looked for.
  int64_t place_in_row(int64_t offset) const {
    alignas(64) Lane block[kBlock];
    const bool is_direct = x_.has_direct_rows();
    const Axes attrs;
    const Lane none = 0;
    Lane best = 0;
    int64_t place = -1;
    Cursor at(&geometry_.reduced, 0);
    for (int64_t i = 0, n; i < geometry_.reduced.numel; i += n) {
      n = std::min(kBlock, geometry_.reduced.numel - i);
      const Lane* numbers = is_direct ? x_.numbers(offset + at.offset(0)) : block;
      is_direct ? at.advance(n) : x_.read(offset, &at, block, n);
      Lane value;
      arg_.values.rows(numbers, n, 1, n, &none, &attrs, &value);
      if (place >= 0 && !is_better<Fn>(value, best)) continue;
      best = value;
      place = i + place_of(numbers, value);
    }
    return place;
  }

  void columns(int64_t offset, int64_t* places, int64_t n) const {
    alignas(64) Lane block[kRun], best[kRun + 16], found[kRun + 16] = {};
    const int64_t stride = geometry_.reduced.strides[0][0];
    x_.read_row(offset, 1, best, n);
    for (int64_t row = 1; row < geometry_.reduced.numel; ++row) {
      const Lane* numbers = x_.is_stored() ? x_.numbers(offset + row * stride) : block;
      if (!x_.is_stored()) x_.read_row(offset + row * stride, 1, block, n);
      arg_.columns(numbers, double(row), best, found, n);
    }
    std::copy_n(found, n, places);
  }

  const HostArg<Fn, Lane>& arg_;
  const Geometry& geometry_;
  Elements<Lane> x_;
  Results y_;
};

template <class Fn, Class type>
Status launch_arg(const OpCall& call) {
  using Lane = pointwise::NumberOf<type>;
  static const HostArg<Fn, Lane> arg = host_arg_of<Fn, Lane>();
  if (call.outputs[0].numel == 0) return {};
  const Geometry geometry = geometry_of(call.inputs[0], call.outputs[0],
                                        attrs_of<Axes>(call).reduced(call.inputs[0].rank));
  const Places<Fn, Lane> places(&arg, call, &geometry);
  parallel_items(geometry.kept.numel, std::max<int64_t>(16, least_results(geometry)),
                 [&](int64_t begin, int64_t end) { places.run(begin, end); });
  return {};
}

template <class Fn, Class type>
KernelPtr arg_kernel() {
  const std::string id = pointwise::kernel_name(Fn::row) + "." + pointwise::class_name(type) + ".host";
  return make_kernel({Fn::row.kind, id, DeviceType::Host, 5},
                     {supported_arg<Fn, type>, launch_arg<Fn, type>});
}

}  // namespace

std::vector<KernelPtr> arg_host_kernels() {
  return {arg_kernel<Argmax, kFloat32>(), arg_kernel<Argmax, kFloat64>(), arg_kernel<Argmax, kInt64>(),
          arg_kernel<Argmin, kFloat32>(), arg_kernel<Argmin, kFloat64>(), arg_kernel<Argmin, kInt64>()};
}

}  // namespace npu::reduce
