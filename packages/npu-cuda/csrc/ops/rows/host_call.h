// One call on the host: its rows in chunks, which threads share, and the sums over all rows of a gradient,
// which each chunk adds to memory of its own.
#pragma once

#include <optional>

#include "ops/planned_kernel.h"
#include "ops/rows/host_loop.h"

namespace npu::rows {

void run_on_host(const OpCall& call, const HostRows& rows, Class type, RunChunk run);
// Sums over no rows.
void clear_sums(const OpCall& call);

// The host rows of a call; those of GroupNormBwd alone have their sums apart.
template <class Fn>
HostRows rows_of_call(const OpCall& call, Class type) {
  const auto attrs = attrs_of<typename Fn::Attrs>(call);
  const Shape shape = shape_of<Fn>();
  HostRows rows = host_rows_of(call, row_call_of(call, shape, parameter_of(attrs)), type);
  rows.eps = attrs.added();
  rows.has_result = shape.has_result && call.outputs[0].numel > 0;
  for (int i = 1; shape.given > 0 && shape.line.split == Split::LastAxes && i < call.num_outputs; ++i) {
    rows.has_sums |= call.outputs[i].numel > 0;
  }
  return rows;
}

// What of a description the launches need.
template <class Fn, Class type>
class RowPlan {
 public:
  explicit RowPlan(const OpCall& call) {
    if (call.inputs[0].numel == 0) return;
    if constexpr (kHasChannels) {
      const int64_t groups = attrs_of<typename Fn::Attrs>(call).groups;
      if (call.outputs[1].numel + call.outputs[2].numel > 0) channels_ = host_rows_of(call, channel_call_of(call, groups), type);
      if (call.outputs[0].numel == 0) return;
    }
    rows_ = rows_of_call<Fn>(call, type);
  }

  uint64_t workspace_bytes() const {
    return rows_ && rows_->has_sums ? uint64_t(rows_->chunks() * 2 * rows_->width() * rows_->number_bytes) : 0;
  }

  void run(const OpCall& call) const {
    static const RunChunk run = chunk_loop<typename Fn::Formula, NumberOf<type>>();
    if (kIsGradient && call.inputs[0].numel == 0) return clear_sums(call);
    if constexpr (kHasChannels) {
      static const RunChunk run_channels = chunk_loop<ChannelFormula, NumberOf<type>>();
      if (channels_) run_on_host(call, *channels_, type, run_channels);
    }
    if (rows_) run_on_host(call, *rows_, type, run);
  }

 private:
  static constexpr bool kIsGradient = Fn::Formula::kGiven > 0;
  static constexpr bool kHasChannels = kIsGradient && Fn::line.split == Split::Groups;

  std::optional<HostRows> rows_, channels_;
};

template <class Fn, Class type>
RowPlan<Fn, type> plan_of(const OpCall& call) { return RowPlan<Fn, type>(call); }

template <class Fn, Class type>
void add_kernel(std::vector<KernelPtr>* kernels) {
  using Planned = PlannedKernel<RowPlan<Fn, type>>;
  const std::string id = kernel_name<Fn>() + "." + pointwise::class_name(type) + ".host";
  const typename Planned::Functions functions{supported<Fn, type>, plan_of<Fn, type>, cost<Fn>};
  kernels->push_back(std::make_shared<Planned>(Fn::line.kind, id, functions, 5));
}

template <class... Fns>
std::vector<KernelPtr> host_kernels_of(Ops<Fns...>) {
  std::vector<KernelPtr> kernels;
  (add_kernel<Fns, pointwise::kFloat32>(&kernels), ...);
  (add_kernel<Fns, pointwise::kFloat64>(&kernels), ...);
  return kernels;
}

}  // namespace npu::rows
