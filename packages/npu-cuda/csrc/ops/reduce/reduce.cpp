#include "ops/reduce/reduce.h"

#include "ops/reduce/arg.h"
#include "ops/reduce/batch_norm.h"
#include "ops/reduce/cumsum.h"

namespace npu::reduce {
namespace {

template <class Fn>
OpInfo info_of() {
  const std::string_view letters = Fn::row.schema;
  const char name[5] = {letters[0], letters[1], letters[2], letters[3], 0};
  return {.kind = Fn::row.kind, .name = std::string(Fn::row.name), .min_inputs = 1, .max_inputs = 1,
          .num_outputs = 1,
          .schema = make_schema<typename Fn::Attrs>(name, Fn::Attrs::fields())};
}

template <class... Fns>
std::vector<OpInfo> infos_of(Ops<Fns...>) { return {info_of<Fns>()...}; }

}  // namespace

Status Axes::check(int rank) const {
  if (axes >= 0 && axes >> rank == 0) return {};
  return Status::not_implemented("axes is " + std::to_string(axes) + ", which are bits of axes below " +
                                 std::to_string(rank));
}

Status AllButLast::check(int) const {
  if (axis == 0) return {};
  return Status::not_implemented("axis is " + std::to_string(axis) + ", not 0: the last axis is kept");
}

std::vector<OpInfo> infos() {
  std::vector<OpInfo> all = infos_of(AllReductions{});
  for (OpInfo& info : arg_infos()) all.push_back(std::move(info));
  for (OpInfo& info : batch_norm_infos()) all.push_back(std::move(info));
  all.push_back(cumsum_info());
  return all;
}

Status check_tensors(const Row& row, Class type, const OpCall& call, uint64_t axes) {
  const TensorDesc &x = call.inputs[0], &y = call.outputs[0];
  NPU_TRY(pointwise::check_dtypes(row, type, call));
  NPU_TRY(check_shapes(x, y, axes));
  if ((row.classes & kNoTruth) && pointwise::element_of(y.dtype) == pointwise::Element::Bool) {
    return Status::not_implemented(std::string(row.name) + " has no result of bool");
  }
  if ((row.classes & kNotEmpty) && x.numel == 0 && y.numel != 0) {
    return Status::not_implemented(std::string(row.name) + " of no elements is undefined");
  }
  return {};
}

}  // namespace npu::reduce
