#include "ops/reduce/cuda_launches.cuh"

namespace npu::reduce {

namespace {

bool has_strides_of(const Nest& nest, int operand, int first_axis, int64_t count) {
  for (int axis = first_axis; axis < nest.rank; ++axis) {
    if (nest.shape[axis] > 1 && nest.strides[operand][axis] % count != 0) return false;
  }
  return true;
}

// Whether all accesses of `count` elements are aligned, and none goes on beyond an axis. Elements that are one
// row may have a rest.
bool is_wide(const Geometry& geometry, bool has_columns, const TensorDesc& x, int64_t count) {
  const Nest& along = has_columns ? geometry.kept : geometry.reduced;
  const Nest& across = has_columns ? geometry.reduced : geometry.kept;
  const int own = has_columns ? kOfInput : 0, other = has_columns ? 0 : kOfInput;
  const bool is_full = along.shape[0] % count == 0 || (!has_columns && along.rank == 1);
  return count > 1 && x.alignment >= kVectorBytes && along.strides[own][0] == 1 && is_full &&
         has_strides_of(along, own, 1, count) && has_strides_of(across, other, 0, count);
}

}  // namespace

Layout layout_of(const Geometry& geometry, const TensorDesc& x, int64_t wide) {
  constexpr int64_t blocks_of_a_device = 4 * 132;  // four for each multiprocessor of a large one
  constexpr int64_t of_a_warp = 1024, least_of_a_thread = 8;
  const int64_t elements = geometry.reduced.numel, results = geometry.kept.numel;
  Layout layout{};
  layout.kind = geometry.has_columns()  ? Layout::Columns
                : elements > of_a_warp ? Layout::Blocks
                                       : Layout::Warps;
  const bool has_columns = layout.kind == Layout::Columns;
  layout.is_wide = is_wide(geometry, has_columns, x, wide);
  const int64_t of_a_lane = layout.is_wide ? wide : 1;
  while (has_columns && layout.lanes < kLanes && layout.lanes * of_a_lane < results) layout.lanes *= 2;
  const int64_t results_of_block = has_columns                      ? layout.lanes * of_a_lane
                                   : layout.kind == Layout::Blocks ? 1
                                                                   : kWarps;
  const int64_t blocks = (results + results_of_block - 1) / results_of_block;
  const int64_t at_once = kLanes * kWarps / layout.lanes;
  const int64_t parts = std::clamp(elements / (least_of_a_thread * at_once), int64_t{1},
                                   std::max<int64_t>(1, blocks_of_a_device / blocks));
  const int64_t even = (elements + parts - 1) / parts;
  const int64_t part = (even + at_once - 1) / at_once * at_once;
  layout.blocks = static_cast<uint32_t>(blocks);
  layout.part = static_cast<uint32_t>(std::max<int64_t>(part, 1));
  layout.parts = static_cast<uint32_t>(std::max<int64_t>(1, (elements + layout.part - 1) / layout.part));
  return layout;
}

Plan plan_of(const OpCall& call, const Geometry& geometry, const Layout& layout) {
  const Nest &kept = geometry.kept, &reduced = geometry.reduced;
  Plan plan{};
  plan.x = call.inputs[0].data;
  plan.y = call.outputs[0].data;
  plan.x_element = pointwise::element_of(call.inputs[0].dtype);
  plan.y_element = pointwise::element_of(call.outputs[0].dtype);
  plan.kept_rank = kept.rank;
  plan.reduced_rank = reduced.rank;
  for (int axis = 0; axis < kept.rank; ++axis) {
    plan.kept_shape[axis] = FastDivision(static_cast<uint32_t>(kept.shape[axis]));
    plan.kept_x[axis] = static_cast<uint32_t>(kept.strides[kOfInput][axis]);
    plan.kept_y[axis] = static_cast<uint32_t>(kept.strides[kOfOutput][axis]);
  }
  for (int axis = 0; axis < reduced.rank; ++axis) {
    plan.reduced_shape[axis] = FastDivision(static_cast<uint32_t>(std::max<int64_t>(1, reduced.shape[axis])));
    plan.reduced_x[axis] = static_cast<uint32_t>(reduced.strides[0][axis]);
  }
  plan.results = static_cast<uint32_t>(kept.numel);
  plan.elements = static_cast<uint32_t>(reduced.numel);
  plan.parts = layout.parts;
  plan.part = layout.part;
  plan.lanes = layout.lanes;
  plan.is_wide = layout.is_wide;
  return plan;
}

uint64_t workspace_numbers(const OpCall& call, const Geometry& geometry, int64_t wide, uint64_t numbers) {
  const Layout layout = layout_of(geometry, call.inputs[0], wide);
  if (layout.parts > 1) numbers += layout.parts;
  return numbers * static_cast<uint64_t>(call.outputs[0].numel);
}

std::vector<KernelPtr> cuda_kernels() { return cuda_reductions_of(AllReductions{}); }

}  // namespace npu::reduce
