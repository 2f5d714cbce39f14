// The host kernels of a list of ops: each expression is compiled for vectors of 16, 32 and 64 bytes, and the
// processor decides. Functions of the tables are always inlined, so that they become code of the instruction
// set of their caller.
#pragma once

#include "ops/host_simd.h"
#include "ops/pointwise/host_ops.h"
#include "ops/pointwise/pointwise.h"
#include "ops/pointwise/vector_double.h"

namespace npu::pointwise {

template <class Fn, class Lane, int kBytes>
struct ComputeVectors {
  using V = Value<typename VectorOf<Lane, kBytes>::type>;
  using Unaligned = typename VectorOf<Lane, kBytes>::unaligned;
  static constexpr int kLanes = kBytes / sizeof(Lane);

  static NPU_INLINE void step(const typename Fn::Attrs& attrs, const Lane* const* in, Lane* const* out, int64_t at) {
    V x[kInputs<Fn> + 1];
    for (int k = 0; k < kInputs<Fn>; ++k) x[k] = V::of(*reinterpret_cast<const Unaligned*>(in[k] + at));
    const auto y = apply<Fn>(attrs, x);
    for (int k = 0; k < kOutputs<Fn>; ++k) *reinterpret_cast<Unaligned*>(out[k] + at) = y.of[k].raw;
  }

  // What is less than a vector is computed by the same code, in vectors of its own: each element has the same bits
  // wherever it is, and the expression is compiled once.
  static NPU_INLINE void run(const void* const* inputs, void* const* outputs, int64_t n, const void* given) {
    const typename Fn::Attrs attrs = *static_cast<const typename Fn::Attrs*>(given);
    const Lane* in[kInputs<Fn> + 1];
    Lane* out[kOutputs<Fn>];
    for (int k = 0; k < kInputs<Fn>; ++k) in[k] = static_cast<const Lane*>(inputs[k]);
    for (int k = 0; k < kOutputs<Fn>; ++k) out[k] = static_cast<Lane*>(outputs[k]);
    const int64_t rest = n % kLanes, whole = n - rest;
    Lane values[kInputs<Fn> + kOutputs<Fn>][kLanes];
    for (int64_t end = whole;; end = kLanes) {
      for (int64_t i = 0; i < end; i += kLanes) step(attrs, in, out, i);
      if (rest == 0 || out[0] == values[kInputs<Fn>]) break;
      for (int k = 0; k < kInputs<Fn>; ++k) {
        std::fill(std::copy_n(in[k] + whole, rest, values[k]), std::end(values[k]), Lane(0));
        in[k] = values[k];
      }
      for (int k = 0; k < kOutputs<Fn>; ++k) out[k] = values[kInputs<Fn> + k];
    }
    for (int k = 0; k < kOutputs<Fn>; ++k) {
      std::copy_n(values[kInputs<Fn> + k], rest, static_cast<Lane*>(outputs[k]) + whole);
    }
  }
};

template <class Fn, class Lane>
struct Computed {
  template <int kBytes>
  using Loop = ComputeVectors<Fn, Lane, kBytes>;
};

template <class Fn, class Lane>
ComputeRow computed_by() { return widest<Lane, Computed<Fn, Lane>::template Loop>(); }

template <class Fn, Class type>
Status launch(const OpCall& call) {
  static const ComputeRow compute = Fn::row.text == "x" ? nullptr : computed_by<Fn, NumberOf<type>>();
  const auto attrs = attrs_of_call<Fn>(call);
  return run_on_host(call, type, compute, &attrs);
}

template <class Fn>
void load_attrs(const OpCall& call, void* attrs) {
  static_assert(sizeof(typename Fn::Attrs) <= kMostAttrBytes);
  const auto loaded = attrs_of_call<Fn>(call);
  std::memcpy(attrs, &loaded, sizeof(loaded));
}

template <class Fn, Class type>
Recording record_loaded(const void* attrs) {
  return record<Fn, NumberOf<type>>(*static_cast<const typename Fn::Attrs*>(attrs));
}

template <class Fn, Class type>
void add_op(std::vector<HostOp>* ops) {
  if constexpr ((Fn::row.classes & type) != 0) {
    const KernelFunctions functions{supported<Fn, type>, launch<Fn, type>, cost<Fn>};
    ops->push_back({Fn::row, type, computed_by<Fn, NumberOf<type>>(), load_attrs<Fn>,
                    record_loaded<Fn, type>, functions});
  }
}

template <class... Fns>
std::vector<HostOp> host_ops_of(Ops<Fns...>) {
  std::vector<HostOp> ops;
  (add_op<Fns, kInt64>(&ops), ...);
  (add_op<Fns, kFloat32>(&ops), ...);
  (add_op<Fns, kFloat64>(&ops), ...);
  return ops;
}

}  // namespace npu::pointwise
