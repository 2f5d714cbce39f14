// The CUDA kernels of reductions: float32, float16 and bfloat16 are read as they are, which is preferred,
// and each class from any dtype.
#pragma once

#include "ops/kernel_loading.h"
#include "ops/pointwise/cuda_kernels.cuh"
#include "ops/reduce/cuda_kernels.cuh"
#include "ops/reduce/reduce.h"

namespace npu::reduce {

// How the threads are laid out.
struct Layout {
  enum { Warps, Blocks, Columns } kind = Warps;
  uint32_t blocks = 0, parts = 1, part = 0, lanes = 1;
  bool is_wide = false;
};

// `wide`: elements of an access of 16 bytes; 1: of each element alone.
Layout layout_of(const Geometry& geometry, const TensorDesc& x, int64_t wide);
Plan plan_of(const OpCall& call, const Geometry& geometry, const Layout& layout);

// `numbers`: of each result, besides the states of its parts.
uint64_t workspace_numbers(const OpCall& call, const Geometry& geometry, int64_t wide, uint64_t numbers);

template <class Fn, class Number, class X>
uint64_t workspace_bytes(const OpCall& call) {
  if (call.outputs[0].numel == 0) return 0;
  return workspace_numbers(call, geometry_of_call<Fn>(call), kWide<X>, kIsTwice<Fn> ? 1 : 0) * sizeof(Number);
}

template <class X>
using AnyOf = std::conditional_t<std::is_same_v<X, typename ItemOf<X>::type>, AnyElement, Centered<AnyElement>>;

// The kernels of a reduction, of which a call launches one of the first four. Columns that are not wide are
// read as those of any dtype.
template <class Number, class Attrs>
struct Kernels {
  using Kernel = void (*)(Plan, Memory<Number>, Attrs);
  Kernel wide_columns, columns, rows_by_block, rows_by_warp, join_parts;
  int64_t wide;
};

template <class Fn, class Number, class X>
Kernels<Number, typename Fn::Attrs> kernels_of() {
  return {columns<Fn, Number, X>, columns<Fn, Number, AnyOf<X>>, rows<Fn, Number, X, true>,
          rows<Fn, Number, X, false>, join_parts<Fn, Number>, kWide<X>};
}

template <class Number, class Attrs>
[[gnu::noinline]] Status launch_pass(const Kernels<Number, Attrs>& kernels, const Plan& plan,
                                     const Layout& layout, const Memory<Number>& memory, const Attrs& p,
                                     void* stream) {
  auto* kernel = layout.kind == Layout::Columns  ? layout.is_wide ? kernels.wide_columns : kernels.columns
                 : layout.kind == Layout::Blocks ? kernels.rows_by_block
                                                 : kernels.rows_by_warp;
  const dim3 block(kLanes, kWarps);
  NPU_TRY(launch(kernel, {dim3(layout.blocks, layout.parts), block}, stream, plan, memory, p));
  if (layout.parts == 1) return {};
  const LaunchShape shape{dim3((plan.results + kWarps - 1) / kWarps), block};
  return launch(kernels.join_parts, shape, stream, plan, memory, p);
}

// One pass over the elements. `shifts`: m of each result; null: 0. `factors`: where they are Centered.
template <class Number, class Attrs>
[[gnu::noinline]] Status launch_once(const OpCall& call, const Kernels<Number, Attrs>& kernels,
                                     const Number* shifts = nullptr, const void* factors = nullptr) {
  if (call.outputs[0].numel == 0) return {};
  const auto p = attrs_of<Attrs>(call);
  const Geometry geometry = geometry_of(call.inputs[0], call.outputs[0], p.reduced(call.inputs[0].rank));
  const Layout layout = layout_of(geometry, call.inputs[0], kernels.wide);
  Plan plan = plan_of(call, geometry, layout);
  plan.factors = factors;
  return launch_pass(kernels, plan, layout, {shifts, static_cast<Number*>(call.workspace), nullptr}, p, call.stream);
}

// A pass for the number that each result needs, then one for the result.
template <class Number, class First, class Attrs>
[[gnu::noinline]] Status launch_twice(const OpCall& call, const Kernels<Number, First>& first,
                                      const Kernels<Number, Attrs>& second) {
  if (call.outputs[0].numel == 0) return {};
  const auto p = attrs_of<Attrs>(call);
  const Geometry geometry = geometry_of(call.inputs[0], call.outputs[0], p.reduced(call.inputs[0].rank));
  const Layout layout = layout_of(geometry, call.inputs[0], second.wide);
  const Plan plan = plan_of(call, geometry, layout);
  auto* numbers = static_cast<Number*>(call.workspace);
  Number* states = numbers + plan.results;
  NPU_TRY((launch_pass<Number, First>(first, plan, layout, {nullptr, states, numbers}, {}, call.stream)));
  return launch_pass<Number, Attrs>(second, plan, layout, {numbers, states, nullptr}, p, call.stream);
}

template <class Fn, class Number, class X>
Status launch_reduction(const OpCall& call) {
  if constexpr (kIsTwice<Fn>) {
    return launch_twice(call, kernels_of<typename Fn::First, Number, X>(), kernels_of<Fn, Number, X>());
  } else {
    return launch_once(call, kernels_of<Fn, Number, X>());
  }
}

template <class Fn, class Number, class X>
Status load_all(const OpCall& call, void** state) {
  NPU_TRY((load_kernel<columns<Fn, Number, X>>(call, state)));
  NPU_TRY((load_kernel<columns<Fn, Number, AnyOf<X>>>(call, state)));
  NPU_TRY((load_kernel<rows<Fn, Number, X, true>>(call, state)));
  NPU_TRY((load_kernel<rows<Fn, Number, X, false>>(call, state)));
  NPU_TRY((load_kernel<join_parts<Fn, Number>>(call, state)));
  if constexpr (kIsTwice<Fn>) return load_all<typename Fn::First, Number, X>(call, state);
  else return {};
}

template <class Fn, Class type, class X>
Status supported_on_cuda(const OpCall& call) {
  NPU_TRY((supported<Fn, type>(call)));
  if constexpr (!std::is_same_v<X, AnyElement>) {
    NPU_TRY(expect_dtype(call.inputs[0], kDTypeOf<X>, "the input"));
  }
  return expect_near(call);
}

template <class Fn, Class type, class X>
void add_kernel(const char* elements, std::vector<KernelPtr>* kernels) {
  if constexpr ((Fn::row.classes & type) != 0) {
    using Number = pointwise::NumberOf<type>;
    constexpr bool is_typed = !std::is_same_v<X, AnyElement>;
    pointwise::add_cuda_kernel(Fn::row, elements, is_typed ? pointwise::kVec : pointwise::kAnyLayout,
                               {supported_on_cuda<Fn, type, X>, launch_reduction<Fn, Number, X>, cost<Fn>,
                                workspace_bytes<Fn, Number, X>, load_all<Fn, Number, X>},
                               kDTypeOf<X>, kernels);
  }
}

template <class Fn>
void add_cuda_kernels(std::vector<KernelPtr>* kernels) {
  add_kernel<Fn, kFloat32, float>("f32", kernels);
  add_kernel<Fn, kFloat32, __half>("f16", kernels);
  add_kernel<Fn, kFloat32, __nv_bfloat16>("bf16", kernels);
  add_kernel<Fn, kFloat32, AnyElement>("f32", kernels);
  add_kernel<Fn, kFloat64, AnyElement>("f64", kernels);
  add_kernel<Fn, kInt64, AnyElement>("i64", kernels);
}

template <class... Fns>
std::vector<KernelPtr> cuda_reductions_of(Ops<Fns...>) {
  std::vector<KernelPtr> kernels;
  (add_cuda_kernels<Fns>(&kernels), ...);
  return kernels;
}

}  // namespace npu::reduce
