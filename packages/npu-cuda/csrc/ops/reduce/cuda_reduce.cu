#include "ops/reduce/cuda_launches.cuh"

namespace npu::reduce {

Layout layout_of(const Geometry& geometry) {
  constexpr int64_t blocks_of_a_device = 264, most_parts = 64;  // two for each multiprocessor of a large one
  constexpr int64_t of_a_warp = 1024, least_of_rows = 2048, least_of_columns = 256;
  const int64_t elements = geometry.reduced.numel, results = geometry.kept.numel;
  Layout layout{};
  layout.kind = geometry.has_columns()  ? Layout::Columns
                : elements > of_a_warp ? Layout::Blocks
                                       : Layout::Warps;
  const int64_t results_of_block = layout.kind == Layout::Columns  ? kLanes
                                   : layout.kind == Layout::Blocks ? 1
                                                                   : kWarps;
  const int64_t blocks = (results + results_of_block - 1) / results_of_block;
  const int64_t least = layout.kind == Layout::Columns ? least_of_columns : least_of_rows;
  const int64_t parts = std::clamp(std::min(blocks_of_a_device / blocks, elements / least), int64_t{1},
                                   most_parts);
  const int64_t even = (elements + parts - 1) / parts;
  const int64_t part = (even + least_of_columns - 1) / least_of_columns * least_of_columns;
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
  plan.is_row = reduced.rank == 1 && reduced.strides[0][0] == 1;
  return plan;
}

uint64_t workspace_numbers(const OpCall& call, const Geometry& geometry, uint64_t numbers) {
  const Layout layout = layout_of(geometry);
  if (layout.parts > 1) numbers += layout.parts;
  return numbers * static_cast<uint64_t>(call.outputs[0].numel);
}

Status check_distances(const OpCall& call) {
  const TensorDesc &x = call.inputs[0], &y = call.outputs[0];
  const bool has_far = pointwise::is_far(x) || pointwise::is_far(y) || x.numel >= int64_t{1} << 31;
  return has_far ? Status::not_implemented("a tensor spans 2^31 elements or more") : Status();
}

std::vector<KernelPtr> cuda_kernels() { return cuda_reductions_of(AllReductions{}); }

}  // namespace npu::reduce
