// Reductions: their descriptions and kernels, all made from the table. To add an op, add a line to table.h.
#pragma once

#include "ops/pointwise/pointwise.h"
#include "ops/reduce/geometry.h"
#include "ops/reduce/op.h"

namespace npu::reduce {

std::vector<OpInfo> infos();

Status check_tensors(const Row& row, Class type, const OpCall& call, uint64_t axes);

template <class Fn>
uint64_t axes_of(const OpCall& call) {
  return attrs_of<typename Fn::Attrs>(call).reduced(call.inputs[0].rank);
}

template <class Fn, Class type>
Status supported(const OpCall& call) {
  NPU_TRY(attrs_of<typename Fn::Attrs>(call).check(call.inputs[0].rank));
  return check_tensors(Fn::row, type, call, axes_of<Fn>(call));
}

template <class Fn>
Geometry geometry_of_call(const OpCall& call) {
  return geometry_of(call.inputs[0], call.outputs[0], axes_of<Fn>(call));
}

template <class Fn>
Cost cost(const OpCall& call) {
  return cost_of(call, (kIsTwice<Fn> ? 2.0 : 1.0) * double(call.inputs[0].numel));
}

std::vector<KernelPtr> host_kernels();
std::vector<KernelPtr> cuda_kernels();

}  // namespace npu::reduce
