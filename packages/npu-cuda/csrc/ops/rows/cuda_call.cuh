// The CUDA kernels of a list of ops over rows: `vec` for contiguous rows of one short float dtype, up to 4096
// wide, which is preferred, and of each class one for everything else.
#pragma once

#include "ops/kernel_loading.h"
#include "ops/rows/cuda_sums.cuh"

namespace npu::rows {

using pointwise::NumberOf;

// Columns up to which a warp takes a row, with 8 or 32 columns a thread, and 128 threads with 32.
inline constexpr int64_t kShortWidth = 256, kWarpWidth = 1024, kBlockWidth = 4096;

DeviceRows device_rows_of(const RowCall& call);
LaunchShape sums_shape(int64_t width);
SumResults sum_results_of(const OpCall& call);
// A sum over no rows is 0.
Status clear_sums_of_cuda(const OpCall& call);

template <class Fn>
DeviceRows device_rows(const OpCall& call) {
  const auto attrs = attrs_of<typename Fn::Attrs>(call);
  DeviceRows rows = device_rows_of(row_call_of(call, shape_of<Fn>(), parameter_of(attrs)));
  rows.eps = attrs.added();
  rows.has_result = Fn::Formula::kHasResult && call.outputs[0].numel > 0;
  return rows;
}

template <class F, class Columns, class Number, int kThreadsOfRow, int kHeld>
Status launch_rows(const OpCall& call, const DeviceRows& rows) {
  constexpr int rows_of_block = kBlockThreads<kHeld> / kThreadsOfRow;
  return launch(row_kernel<F, Columns, Number, kThreadsOfRow, kHeld>,
                {blocks_for(rows.count, rows_of_block), dim3(kBlockThreads<kHeld>)}, call.stream, rows);
}

template <class F, class Number>
Status launch_any(const OpCall& call, const DeviceRows& rows) {
  using Columns = AnyColumns<Number, F::kInputs>;
  if (rows.width <= kWarpWidth) return launch_rows<F, Columns, Number, 32, 0>(call, rows);
  return launch_rows<F, Columns, Number, kBlockThreads<0>, 0>(call, rows);
}

template <class F, class X>
Status launch_plain(const OpCall& call, const DeviceRows& rows) {
  using Columns = PlainColumns<X, F::kInputs>;
  constexpr int vector = Columns::kVector;
  if (rows.width <= kShortWidth) return launch_rows<F, Columns, float, 32, 8 / vector>(call, rows);
  if (rows.width <= kWarpWidth) return launch_rows<F, Columns, float, 32, 32 / vector>(call, rows);
  return launch_rows<F, Columns, float, 128, 32 / vector>(call, rows);
}

template <class Fn>
bool wants_sums(const OpCall& call) {
  bool wants = false;
  for (int i = 1; Fn::Formula::kGiven > 0 && i < call.num_outputs; ++i) wants |= call.outputs[i].numel > 0;
  return wants;
}

// Returns the bytes of workspace. The host has a workspace_bytes of the same types: one name would be one function.
template <class Fn, Class type>
uint64_t bytes_of_sums(const OpCall& call) {
  if (call.inputs[0].numel == 0 || Fn::line.split != Split::LastAxes || !wants_sums<Fn>(call)) return 0;
  const int64_t count = call.inputs[Fn::Formula::kInputs].numel;
  return sum_chunks(count).count * 2 * uint64_t(call.inputs[0].numel / count) * sizeof(NumberOf<type>);
}

// The gradients of gamma and beta. Columns: of x and dy.
template <class Fn, class Columns, class Number>
Status launch_sums(const OpCall& call, const DeviceRows& rows) {
  if constexpr (Fn::line.split == Split::Groups) {
    return launch_any<ChannelFormula, Number>(
        call, device_rows_of(channel_call_of(call, attrs_of<Groups>(call).groups)));
  } else {
    constexpr int64_t columns = kSumColumns * Columns::kVector;
    const SumChunks chunks = sum_chunks(rows.count);
    auto* partial = static_cast<Number*>(call.workspace);
    const dim3 grid((rows.width + columns - 1) / columns, chunks.count);
    NPU_TRY(launch(sum_chunk<Columns, Number, Fn::Formula::kGiven == 2>, {grid, dim3(kThreads)}, call.stream,
                   rows, chunks, partial));
    return launch(add_chunks<Number>, sums_shape(rows.width), call.stream, partial, chunks.count, rows.width,
                  sum_results_of(call));
  }
}

// `run` launches the kernel of the rows.
template <class Fn, class SumColumns, class Number, class Run>
Status launch_all(const OpCall& call, Run run) {
  if (call.inputs[0].numel == 0) return wants_sums<Fn>(call) ? clear_sums_of_cuda(call) : Status();
  const DeviceRows rows = device_rows<Fn>(call);
  if constexpr (Fn::Formula::kGiven > 0) {
    if (wants_sums<Fn>(call)) NPU_TRY((launch_sums<Fn, SumColumns, Number>(call, rows)));
    if (!rows.has_result) return {};
  }
  return run(call, rows);
}

template <class Fn, Class type>
Status supported_any(const OpCall& call) {
  NPU_TRY((supported<Fn, type>(call)));
  return expect_near(call);
}

template <class Fn, Class type>
Status launch_any_call(const OpCall& call) {
  using Number = NumberOf<type>;
  return launch_all<Fn, AnyColumns<Number, 2>, Number>(call, launch_any<typename Fn::Formula, Number>);
}

// Contiguous rows along the operands, all of one dtype.
Status check_plain(const RowCall& call, DType dtype);

template <class Fn, class X>
Status supported_plain(const OpCall& call) {
  NPU_TRY((supported_any<Fn, pointwise::kFloat32>(call)));
  if (call.inputs[0].numel == 0) return {};
  return check_plain(row_call_of(call, shape_of<Fn>(), parameter_of(attrs_of<typename Fn::Attrs>(call))),
                     kDTypeOf<X>);
}

template <class Fn, class X>
Status launch_plain_call(const OpCall& call) {
  return launch_all<Fn, PlainColumns<X, 2>, float>(call, launch_plain<typename Fn::Formula, X>);
}

// Loads the code of all kernels that a call may launch.
template <class F, class Number>
Status load_any(const OpCall& call, void** state) {
  using Columns = AnyColumns<Number, F::kInputs>;
  NPU_TRY((load_kernel<row_kernel<F, Columns, Number, 32, 0>>(call, state)));
  return load_kernel<row_kernel<F, Columns, Number, kBlockThreads<0>, 0>>(call, state);
}

template <class F, class X>
Status load_plain(const OpCall& call, void** state) {
  using Columns = PlainColumns<X, F::kInputs>;
  constexpr int vector = Columns::kVector;
  NPU_TRY((load_kernel<row_kernel<F, Columns, float, 32, 8 / vector>>(call, state)));
  NPU_TRY((load_kernel<row_kernel<F, Columns, float, 32, 32 / vector>>(call, state)));
  return load_kernel<row_kernel<F, Columns, float, 128, 32 / vector>>(call, state);
}

template <class Fn, class SumColumns, class Number, Status (*load_rows)(const OpCall&, void**)>
Status load_all(const OpCall& call, void** state) {
  if constexpr (Fn::Formula::kGiven > 0 && Fn::line.split == Split::LastAxes) {
    NPU_TRY((load_kernel<sum_chunk<SumColumns, Number, Fn::Formula::kGiven == 2>>(call, state)));
    NPU_TRY(load_kernel<add_chunks<Number>>(call, state));
  } else if constexpr (Fn::Formula::kGiven > 0) {
    NPU_TRY((load_any<ChannelFormula, Number>(call, state)));
  }
  return load_rows(call, state);
}

template <class Fn, class X>
void add_plain(const char* suffix, std::vector<KernelPtr>* kernels) {
  const std::string id = kernel_name<Fn>() + "." + suffix + ".cuda.vec";
  const KernelFunctions functions{
      supported_plain<Fn, X>, launch_plain_call<Fn, X>, cost<Fn>, bytes_of_sums<Fn, pointwise::kFloat32>,
      load_all<Fn, PlainColumns<X, 2>, float, load_plain<typename Fn::Formula, X>>};
  kernels->push_back(make_kernel({Fn::line.kind, id, DeviceType::Cuda, 20}, functions, kDTypeOf<X>));
}

template <class Fn, Class type>
void add_any(std::vector<KernelPtr>* kernels) {
  const std::string id = kernel_name<Fn>() + "." + pointwise::class_name(type) + ".cuda";
  using Number = NumberOf<type>;
  const KernelFunctions functions{
      supported_any<Fn, type>, launch_any_call<Fn, type>, cost<Fn>, bytes_of_sums<Fn, type>,
      load_all<Fn, AnyColumns<Number, 2>, Number, load_any<typename Fn::Formula, Number>>};
  kernels->push_back(make_kernel({Fn::line.kind, id, DeviceType::Cuda, 5}, functions));
}

template <class Fn>
void add_kernels(std::vector<KernelPtr>* kernels) {
  add_plain<Fn, float>("f32", kernels);
  add_plain<Fn, __half>("f16", kernels);
  add_plain<Fn, __nv_bfloat16>("bf16", kernels);
  add_any<Fn, pointwise::kFloat32>(kernels);
  add_any<Fn, pointwise::kFloat64>(kernels);
}

template <class... Fns>
std::vector<KernelPtr> cuda_kernels_of(Ops<Fns...>) {
  std::vector<KernelPtr> kernels;
  (add_kernels<Fns>(&kernels), ...);
  return kernels;
}

}  // namespace npu::rows
