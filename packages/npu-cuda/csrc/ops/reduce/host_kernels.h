// The host kernels of reductions: the expressions of an op, compiled for vectors of 16, 32 and 64 bytes.
#pragma once

#include "ops/pointwise/host_kernels.h"
#include "ops/reduce/host_call.h"
#include "ops/reduce/reduce.h"

namespace npu::reduce {

template <class Fn, class Lane, int kBytes>
struct Vectors {
  using T = typename pointwise::VectorOf<Lane, kBytes>::type;
  using Unaligned = typename pointwise::VectorOf<Lane, kBytes>::unaligned;
  using V = Value<T>;
  using Attrs = typename Fn::Attrs;
  static constexpr int kLanes = kBytes / sizeof(Lane);

  static NPU_INLINE V load(const Lane* from) { return V::of(*reinterpret_cast<const Unaligned*>(from)); }
  static NPU_INLINE void store(V value, Lane* to) { *reinterpret_cast<Unaligned*>(to) = value.raw; }
  static NPU_INLINE V load(const Lane* from, int64_t n) {
    Lane lanes[kLanes] = {};
    for (int64_t i = 0; i < n; ++i) lanes[i] = from[i];
    return load(lanes);
  }
  static NPU_INLINE void store(V value, Lane* to, int64_t n) {
    Lane lanes[kLanes];
    store(value, lanes);
    for (int64_t i = 0; i < n; ++i) to[i] = lanes[i];
  }
  // `yes` in the first n lanes.
  static NPU_INLINE V first_of(int64_t n, V yes, V no) {
    Lane places[kLanes];
    for (int i = 0; i < kLanes; ++i) places[i] = Lane(i);
    return select(load(places) < V(double(n)), yes, no);
  }

  // The lanes from kFirst on, around the end.
  template <int kFirst, size_t... i>
  static NPU_INLINE auto lanes_from(V state, std::index_sequence<i...>) {
    return __builtin_shufflevector(state.raw, state.raw, ((i + kFirst) % kLanes)...);
  }
  // Joins the first kCount lanes, half by half.
  template <int kCount = kLanes>
  static NPU_INLINE Lane join(V state) {
    if constexpr (kCount == 1) {
      return state.raw[0];
    } else if constexpr (kBytes > 16) {
      using Half = Vectors<Fn, Lane, kBytes / 2>;
      constexpr std::make_index_sequence<kLanes / 2> half;
      const auto low = Half::V::of(lanes_from<0>(state, half)),
          high = Half::V::of(lanes_from<kLanes / 2>(state, half));
      return Half::join(Fn::merge(low, high));
    } else {
      const auto high = lanes_from<kCount / 2>(state, std::make_index_sequence<kLanes>());
      return join<kCount / 2>(Fn::merge(state, V::of(high)));
    }
  }

  static NPU_INLINE Lane state_of(const Attrs& p, const Lane* x, int64_t n, Lane shift) {
    constexpr int kStates = 4;
    const V m = V::of(shift - T{});
    V a[kStates] = {Fn::template start<V>(), Fn::template start<V>(), Fn::template start<V>(),
                    Fn::template start<V>()};
    int64_t i = 0;
    for (; i + kStates * kLanes <= n; i += kStates * kLanes) {
      for (int k = 0; k < kStates; ++k) a[k] = Fn::step(p, a[k], load(x + i + k * kLanes), m);
    }
    if (i > 0) a[0] = Fn::merge(Fn::merge(a[0], a[1]), Fn::merge(a[2], a[3]));
    for (; i + kLanes <= n; i += kLanes) a[0] = Fn::step(p, a[0], load(x + i), m);
    if (i < n) a[0] = first_of(n - i, Fn::step(p, a[0], load(x + i, n - i), m), a[0]);
    return join(a[0]);
  }

  struct RowLoop {
    static NPU_INLINE void run(const Lane* x, int64_t stride, int64_t count, int64_t n, const Lane* shifts,
                               const void* attrs, Lane* states) {
      const Attrs p = *static_cast<const Attrs*>(attrs);
      for (int64_t i = 0; i < count; ++i) states[i] = state_of(p, x + i * stride, n, shifts[i]);
    }
  };

  struct ColumnLoop {
    static NPU_INLINE void run(const Lane* x, int64_t stride, int64_t count, int64_t n, const Lane* shifts,
                               const void* attrs, Lane* states) {
      const Attrs p = *static_cast<const Attrs*>(attrs);
      int64_t i = 0;
      for (; i + kLanes <= n; i += kLanes) {
        V a = load(states + i);
        const V m = load(shifts + i);
        for (int64_t row = 0; row < count; ++row) a = Fn::step(p, a, load(x + row * stride + i), m);
        store(a, states + i);
      }
      if (i == n) return;
      V a = load(states + i, n - i);
      const V m = load(shifts + i, n - i);
      for (int64_t row = 0; row < count; ++row) a = Fn::step(p, a, load(x + row * stride + i, n - i), m);
      store(a, states + i, n - i);
    }
  };

  struct MergeLoop {
    static NPU_INLINE void run(Lane* a, const Lane* b, int64_t n) {
      for (int64_t i = 0; i < n; ++i) a[i] = Fn::merge(Value<Lane>::of(a[i]), Value<Lane>::of(b[i])).raw;
    }
  };

  struct FinishLoop {
    static NPU_INLINE void run(Lane* a, const Lane* shifts, int64_t n, double count, const void* attrs) {
      const Attrs p = *static_cast<const Attrs*>(attrs);
      int64_t i = 0;
      for (; i + kLanes <= n; i += kLanes) store(Fn::finish(p, load(a + i), load(shifts + i), count), a + i);
      if (i < n) store(Fn::finish(p, load(a + i, n - i), load(shifts + i, n - i), count), a + i, n - i);
    }
  };
};

template <class Fn, class Lane>
Pass<Lane> pass_of() {
  const Lane start = Fn::template start<Value<Lane>>().raw;
#if defined(__x86_64__)
  if (has_avx512()) {
    using All = Vectors<Fn, Lane, 64>;
    return {run_with_avx512<typename All::RowLoop>, run_with_avx512<typename All::ColumnLoop>,
            run_with_avx512<typename All::MergeLoop>, run_with_avx512<typename All::FinishLoop>, start};
  }
  if (has_avx2()) {
    using All = Vectors<Fn, Lane, 32>;
    return {run_with_avx2<typename All::RowLoop>, run_with_avx2<typename All::ColumnLoop>,
            run_with_avx2<typename All::MergeLoop>, run_with_avx2<typename All::FinishLoop>, start};
  }
#endif
  using All = Vectors<Fn, Lane, 16>;
  return {All::RowLoop::run, All::ColumnLoop::run, All::MergeLoop::run, All::FinishLoop::run, start};
}

template <class Fn, class Lane>
HostOp<Lane> host_op_of() {
  const Pass<Lane> pass = pass_of<Fn, Lane>();
  if constexpr (kIsTwice<Fn>) return {pass_of<typename Fn::First, Lane>(), pass, true};
  else return {pass, pass, false};
}

template <class Fn, Class type>
Status launch(const OpCall& call) {
  using Lane = pointwise::NumberOf<type>;
  static const HostOp<Lane> op = host_op_of<Fn, Lane>();
  const auto attrs = attrs_of<typename Fn::Attrs>(call);
  if (call.outputs[0].numel != 0) run_on_host(call, geometry_of_call<Fn>(call), op, &attrs);
  return {};
}

template <class Fn, Class type>
void add_kernel(std::vector<KernelPtr>* kernels) {
  if constexpr ((Fn::row.classes & type) != 0) {
    const std::string id = pointwise::kernel_name(Fn::row) + "." + pointwise::class_name(type) + ".host";
    const KernelFunctions functions{supported<Fn, type>, launch<Fn, type>, cost<Fn>};
    kernels->push_back(make_kernel({Fn::row.kind, id, DeviceType::Host, 5}, functions));
  }
}

template <class... Fns>
std::vector<KernelPtr> reductions_of(Ops<Fns...>) {
  std::vector<KernelPtr> kernels;
  (add_kernel<Fns, kFloat32>(&kernels), ...);
  (add_kernel<Fns, kFloat64>(&kernels), ...);
  (add_kernel<Fns, kInt64>(&kernels), ...);
  return kernels;
}

}  // namespace npu::reduce
