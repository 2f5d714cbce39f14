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

  // Joins the lanes, half by half.
  static NPU_INLINE Lane join(V state) {
    if constexpr (kBytes == 16) {
      Lane lanes[kLanes];
      store(state, lanes);
      auto joined = Value<Lane>::of(lanes[0]);
      for (int i = 1; i < kLanes; ++i) joined = Fn::merge(joined, Value<Lane>::of(lanes[i]));
      return joined.raw;
    } else {
      using Half = Vectors<Fn, Lane, kBytes / 2>;
      typename Half::T halves[2];
      std::memcpy(halves, &state.raw, kBytes);
      return Half::join(Fn::merge(Half::V::of(halves[0]), Half::V::of(halves[1])));
    }
  }

  struct RowLoop {
    static NPU_INLINE void run(const Lane* x, int64_t n, Lane shift, const void* attrs, Lane* state) {
      const Attrs p = *static_cast<const Attrs*>(attrs);
      const V m = V::of(shift - T{});
      constexpr int kStates = 4;
      V a[kStates] = {Fn::template start<V>(), Fn::template start<V>(), Fn::template start<V>(),
                      Fn::template start<V>()};
      int64_t i = 0;
      for (; i + kStates * kLanes <= n; i += kStates * kLanes) {
        for (int k = 0; k < kStates; ++k) a[k] = Fn::step(p, a[k], load(x + i + k * kLanes), m);
      }
      for (; i + kLanes <= n; i += kLanes) a[0] = Fn::step(p, a[0], load(x + i), m);
      if (i < n) a[1] = first_of(n - i, Fn::step(p, a[1], load(x + i, n - i), m), a[1]);
      *state = join(Fn::merge(Fn::merge(a[0], a[1]), Fn::merge(a[2], a[3])));
    }
  };

  struct ColumnLoop {
    static NPU_INLINE void run(const Lane* const* rows, int64_t count, const Lane* shifts, const void* attrs,
                               Lane* states, int64_t n) {
      const Attrs p = *static_cast<const Attrs*>(attrs);
      int64_t i = 0;
      for (; i + kLanes <= n; i += kLanes) {
        V a = load(states + i);
        const V m = load(shifts + i);
        for (int64_t row = 0; row < count; ++row) a = Fn::step(p, a, load(rows[row] + i), m);
        store(a, states + i);
      }
      if (i == n) return;
      V a = load(states + i, n - i);
      const V m = load(shifts + i, n - i);
      for (int64_t row = 0; row < count; ++row) a = Fn::step(p, a, load(rows[row] + i, n - i), m);
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
      for (int64_t i = 0; i < n; i += kLanes) {
        const int64_t lanes = std::min<int64_t>(kLanes, n - i);
        store(Fn::finish(p, load(a + i, lanes), load(shifts + i, lanes), count), a + i, lanes);
      }
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
