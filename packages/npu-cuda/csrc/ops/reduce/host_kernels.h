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
  template <int kCount = kLanes>
  static NPU_INLINE Lane join(V state) {
    if constexpr (kCount == 1) return state.raw[0];
    else return join<kCount / 2>(Fn::merge(state, half_of<kCount, kCount / 2>(state, state)));
  }

  // Where the first halves of runs of lanes are, of the runs of one vector and then of another.
  static constexpr int place_of(int length, int lane) {
    const int run = lane / (length / 2), runs = kLanes / length;
    return run / runs * kLanes + run % runs * length + lane % (length / 2);
  }
  template <int kLength, int kHalf>
  static NPU_INLINE V half_of(V a, V b) {
    return [&]<size_t... i>(std::index_sequence<i...>) __attribute__((always_inline)) {
      return V::of(__builtin_shufflevector(a.raw, b.raw, (place_of(kLength, i) + kHalf)...));
    }(std::make_index_sequence<kLanes>());
  }
  // Lane i is what `join` makes of states[i], in the same order: at each level two vectors become one.
  template <int kLength = kLanes>
  static NPU_INLINE V join_each(V* states) {
    if constexpr (kLength == 1) {
      return states[0];
    } else {
      for (int i = 0; i < kLength / 2; ++i) {
        const V a = states[2 * i], b = states[2 * i + 1];
        states[i] = Fn::merge(half_of<kLength, 0>(a, b), half_of<kLength, kLength / 2>(a, b));
      }
      return join_each<kLength / 2>(states);
    }
  }

  // Returns the state of a row, in parts of which each lane has one.
  static NPU_INLINE V state_of(const Attrs& p, const Lane* x, int64_t n, Lane shift) {
    constexpr int kStates = 4;
    const V m = V::of(shift - T{});
    V a[kStates] = {Fn::template start<V>(), Fn::template start<V>(), Fn::template start<V>(),
                    Fn::template start<V>()};
    int64_t i = 0;
    for (; i + kStates * kLanes <= n; i += kStates * kLanes) {
      for (int k = 0; k < kStates; ++k) a[k] = Fn::step(p, a[k], load(x + i + k * kLanes), m);
    }
    if (i > 0) a[0] = Fn::merge(Fn::merge(a[0], a[1]), Fn::merge(a[2], a[3]));
    for (; i < n; i += kLanes) {
      const bool is_whole = i + kLanes <= n;
      const V next = Fn::step(p, a[0], is_whole ? load(x + i) : load(x + i, n - i), m);
      a[0] = is_whole ? next : first_of(n - i, next, a[0]);
    }
    return a[0];
  }

  struct RowLoop {
    static NPU_INLINE void run(const Lane* x, int64_t stride, int64_t count, int64_t n, const Lane* shifts,
                               const void* attrs, Lane* states) {
      const Attrs p = *static_cast<const Attrs*>(attrs);
      V rows[kLanes];
      for (int64_t i = 0; i < count; ++i) {
        rows[i % kLanes] = state_of(p, x + i * stride, n, shifts[i]);
        if (i % kLanes == kLanes - 1) store(join_each(rows), states + i - (kLanes - 1));
      }
      for (int64_t i = count / kLanes * kLanes; i < count; ++i) states[i] = join(rows[i % kLanes]);
    }
  };

  // Neighbouring columns, in vectors whose steps do not wait for each other.
  template <int kVectors>
  static NPU_INLINE void reduce_columns(const Attrs& p, const Lane* x, int64_t stride, int64_t count,
                                        const Lane* shifts, Lane* states) {
    V a[kVectors], m[kVectors];
    for (int k = 0; k < kVectors; ++k) a[k] = load(states + k * kLanes), m[k] = load(shifts + k * kLanes);
    for (int64_t row = 0; row < count; ++row) {
      for (int k = 0; k < kVectors; ++k) a[k] = Fn::step(p, a[k], load(x + row * stride + k * kLanes), m[k]);
    }
    for (int k = 0; k < kVectors; ++k) store(a[k], states + k * kLanes);
  }

  struct ColumnLoop {
    static NPU_INLINE void run(const Lane* x, int64_t stride, int64_t count, int64_t n, const Lane* shifts,
                               const void* attrs, Lane* states) {
      constexpr int kVectors = 4;
      const Attrs p = *static_cast<const Attrs*>(attrs);
      int64_t i = 0;
      for (; i + kVectors * kLanes <= n; i += kVectors * kLanes) {
        reduce_columns<kVectors>(p, x + i, stride, count, shifts + i, states + i);
      }
      for (; i + kLanes <= n; i += kLanes) reduce_columns<1>(p, x + i, stride, count, shifts + i, states + i);
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
      for (int64_t i = 0; i < n; i += kLanes) {
        const bool is_whole = i + kLanes <= n;
        const V state = is_whole ? load(a + i) : load(a + i, n - i);
        const V result = Fn::finish(p, state, is_whole ? load(shifts + i) : load(shifts + i, n - i), count);
        is_whole ? store(result, a + i) : store(result, a + i, n - i);
      }
    }
  };
};

template <class Fn, class Lane>
struct Loops {
  template <int kBytes>
  using Rows = typename Vectors<Fn, Lane, kBytes>::RowLoop;
  template <int kBytes>
  using Columns = typename Vectors<Fn, Lane, kBytes>::ColumnLoop;
  template <int kBytes>
  using Merge = typename Vectors<Fn, Lane, kBytes>::MergeLoop;
  template <int kBytes>
  using Finish = typename Vectors<Fn, Lane, kBytes>::FinishLoop;
};

template <class Fn, class Lane>
Pass<Lane> pass_of() {
  using All = Loops<Fn, Lane>;
  return {widest<Lane, All::template Rows>(), widest<Lane, All::template Columns>(),
          widest<Lane, All::template Merge>(), widest<Lane, All::template Finish>(),
          Fn::template start<Value<Lane>>().raw};
}

template <class Fn, class Lane>
HostOp<Lane> host_op_of() {
  const Pass<Lane> pass = pass_of<Fn, Lane>();
  if constexpr (kIsTwice<Fn>) return {pass_of<typename Fn::First, Lane>(), pass, true};
  else return {pass, pass, false};
}

template <class Fn, Class type>
Status launch_given(const OpCall& call, const pointwise::NumberOf<type>* given) {
  using Lane = pointwise::NumberOf<type>;
  static const HostOp<Lane> op = host_op_of<Fn, Lane>();
  const auto attrs = attrs_of<typename Fn::Attrs>(call);
  if (call.outputs[0].numel != 0) run_on_host(call, geometry_of_call<Fn>(call), op, &attrs, given);
  return {};
}

template <class Fn, Class type>
Status launch(const OpCall& call) { return launch_given<Fn, type>(call, nullptr); }

template <class Fn, Class type>
void add_host_kernel(std::vector<KernelPtr>* kernels) {
  if constexpr ((Fn::row.classes & type) != 0) {
    const std::string id = pointwise::kernel_name(Fn::row) + "." + pointwise::class_name(type) + ".host";
    const KernelFunctions functions{supported<Fn, type>, launch<Fn, type>, cost<Fn>};
    kernels->push_back(make_kernel({Fn::row.kind, id, DeviceType::Host, 5}, functions));
  }
}

template <class... Fns>
std::vector<KernelPtr> reductions_of(Ops<Fns...>) {
  std::vector<KernelPtr> kernels;
  (add_host_kernel<Fns, kFloat32>(&kernels), ...);
  (add_host_kernel<Fns, kFloat64>(&kernels), ...);
  (add_host_kernel<Fns, kInt64>(&kernels), ...);
  return kernels;
}

}  // namespace npu::reduce
