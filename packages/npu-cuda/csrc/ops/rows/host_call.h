// One call on the host: its rows in chunks, which threads share, and the sums over all rows of a gradient,
// which each chunk adds to memory of its own.
#pragma once

#include "ops/rows/host_loop.h"

namespace npu::rows {

Status run_on_host(const OpCall& call, HostRows rows, Class type, RunChunk run);
// Sums over no rows.
Status clear_sums(const OpCall& call);

// The host rows of a call; those of GroupNormBwd alone have their sums apart.
template <class Fn>
HostRows rows_of_call(const OpCall& call, Class type) {
  const auto attrs = attrs_of<typename Fn::Attrs>(call);
  const Shape shape = shape_of<Fn>();
  HostRows rows = host_rows_of(row_call_of(call, shape, parameter_of(attrs)), type);
  rows.eps = attrs.added();
  rows.has_result = shape.has_result && call.outputs[0].numel > 0;
  for (int i = 1; shape.given > 0 && shape.line.split == Split::LastAxes && i < call.num_outputs; ++i) {
    rows.has_sums |= call.outputs[i].numel > 0;
  }
  return rows;
}

template <Class type>
Status launch_channels(const OpCall& call) {
  static const RunChunk run = chunk_loop<ChannelFormula, NumberOf<type>>();
  const int64_t groups = attrs_of<Groups>(call).groups;
  return run_on_host(call, host_rows_of(channel_call_of(call, groups), type), type, run);
}

template <class Fn, Class type>
Status launch(const OpCall& call) {
  static const RunChunk run = chunk_loop<typename Fn::Formula, NumberOf<type>>();
  const bool is_gradient = Fn::Formula::kGiven > 0;
  if (call.inputs[0].numel == 0) return is_gradient ? clear_sums(call) : Status();
  if constexpr (Fn::Formula::kGiven > 0 && Fn::line.split == Split::Groups) {
    if (call.outputs[1].numel + call.outputs[2].numel > 0) NPU_TRY(launch_channels<type>(call));
    if (call.outputs[0].numel == 0) return {};
  }
  return run_on_host(call, rows_of_call<Fn>(call, type), type, run);
}

template <class Fn, Class type>
uint64_t workspace_bytes(const OpCall& call) {
  if (call.inputs[0].numel == 0) return 0;
  const HostRows rows = rows_of_call<Fn>(call, type);
  return rows.has_sums ? uint64_t(rows.chunks() * 2 * rows.call.width() * rows.number_bytes) : 0;
}

template <class Fn, Class type>
void add_kernel(std::vector<KernelPtr>* kernels) {
  const std::string id = kernel_name<Fn>() + "." + pointwise::class_name(type) + ".host";
  const KernelFunctions functions{supported<Fn, type>, launch<Fn, type>, cost<Fn>, workspace_bytes<Fn, type>};
  kernels->push_back(make_kernel({Fn::line.kind, id, DeviceType::Host, 5}, functions));
}

template <class... Fns>
std::vector<KernelPtr> host_kernels_of(Ops<Fns...>) {
  std::vector<KernelPtr> kernels;
  (add_kernel<Fns, pointwise::kFloat32>(&kernels), ...);
  (add_kernel<Fns, pointwise::kFloat64>(&kernels), ...);
  return kernels;
}

}  // namespace npu::rows
