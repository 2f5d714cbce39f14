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
  enum { Warps, Blocks, Columns } kind;
  uint32_t blocks, parts, part;
};

Layout layout_of(const Geometry& geometry);
Plan plan_of(const OpCall& call, const Geometry& geometry, const Layout& layout);
Status check_distances(const OpCall& call);

template <class Fn, class Number>
uint64_t workspace_bytes(const OpCall& call) {
  if (call.outputs[0].numel == 0) return 0;
  const Layout layout = layout_of(geometry_of_call<Fn>(call));
  const uint64_t numbers = (kIsTwice<Fn> ? 1 : 0) + (layout.parts > 1 ? layout.parts : 0);
  return numbers * static_cast<uint64_t>(call.outputs[0].numel) * sizeof(Number);
}

template <class Fn, class Number, class X>
Status launch_pass(const Plan& plan, const Layout& layout, const Memory<Number>& memory,
                   const typename Fn::Attrs& p,
                   void* stream) {
  auto* kernel = layout.kind == Layout::Columns ? columns<Fn, Number, X>
                 : layout.kind == Layout::Blocks ? rows<Fn, Number, X, true>
                                                 : rows<Fn, Number, X, false>;
  const dim3 block(kLanes, kWarps);
  NPU_TRY(launch(kernel, {dim3(layout.blocks, layout.parts), block}, stream, plan, memory, p));
  if (layout.parts == 1) return {};
  const LaunchShape shape{dim3((plan.results + kWarps - 1) / kWarps), block};
  return launch(join_parts<Fn, Number>, shape, stream, plan, memory, p);
}

template <class Fn, class Number, class X>
Status launch_reduction(const OpCall& call) {
  if (call.outputs[0].numel == 0) return {};
  const Geometry geometry = geometry_of_call<Fn>(call);
  const Layout layout = layout_of(geometry);
  const Plan plan = plan_of(call, geometry, layout);
  auto* numbers = static_cast<Number*>(call.workspace);
  const auto p = attrs_of<typename Fn::Attrs>(call);
  if constexpr (kIsTwice<Fn>) {
    Number* states = numbers + plan.results;
    const typename Fn::First::Attrs first;
    NPU_TRY((launch_pass<typename Fn::First, Number, X>(plan, layout, {nullptr, states, numbers}, first,
                                                        call.stream)));
    return launch_pass<Fn, Number, X>(plan, layout, {numbers, states, nullptr}, p, call.stream);
  } else {
    return launch_pass<Fn, Number, X>(plan, layout, {nullptr, numbers, nullptr}, p, call.stream);
  }
}

template <class Fn, class Number, class X>
Status load_all(const OpCall& call, void** state) {
  NPU_TRY((load_kernel<columns<Fn, Number, X>>(call, state)));
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
  return check_distances(call);
}

template <class Fn, Class type, class X>
void add_cuda_kernel(const char* suffix, std::vector<KernelPtr>* kernels) {
  if constexpr ((Fn::row.classes & type) != 0) {
    using Number = pointwise::NumberOf<type>;
    constexpr bool is_typed = !std::is_same_v<X, AnyElement>;
    const char* end = is_typed ? ".cuda.vec" : ".cuda";
    const std::string id = pointwise::kernel_name(Fn::row) + "." + suffix + end;
    const KernelFunctions functions{supported_on_cuda<Fn, type, X>, launch_reduction<Fn, Number, X>, cost<Fn>,
                                    workspace_bytes<Fn, Number>, load_all<Fn, Number, X>};
    const DType dtype = is_typed ? kDTypeOf<X> : DType{};
    kernels->push_back(make_kernel({Fn::row.kind, id, DeviceType::Cuda, is_typed ? 20 : 5}, functions,
                                   dtype));
  }
}

template <class Fn>
void add_cuda_kernels(std::vector<KernelPtr>* kernels) {
  add_cuda_kernel<Fn, kFloat32, float>("f32", kernels);
  add_cuda_kernel<Fn, kFloat32, __half>("f16", kernels);
  add_cuda_kernel<Fn, kFloat32, __nv_bfloat16>("bf16", kernels);
  add_cuda_kernel<Fn, kFloat32, AnyElement>("f32", kernels);
  add_cuda_kernel<Fn, kFloat64, AnyElement>("f64", kernels);
  add_cuda_kernel<Fn, kInt64, AnyElement>("i64", kernels);
}

template <class... Fns>
std::vector<KernelPtr> cuda_reductions_of(Ops<Fns...>) {
  std::vector<KernelPtr> kernels;
  (add_cuda_kernels<Fns>(&kernels), ...);
  return kernels;
}

}  // namespace npu::reduce
