#include "ops/reduce/arg.h"

#include <bit>

#include "ops/reduce/reduce.h"

namespace npu::reduce {
namespace {

OpInfo info_of(const Row& row, const char (&schema)[5]) {
  return {.kind = row.kind, .name = std::string(row.name), .min_inputs = 1, .max_inputs = 1, .num_outputs = 1,
          .schema = make_schema<Axes>(schema, Axes::fields())};
}

}  // namespace

std::vector<OpInfo> arg_infos() { return {info_of(Argmax::row, "RDAX"), info_of(Argmin::row, "RDAM")}; }

Status check_arg(const Row& row, Class type, const OpCall& call) {
  constexpr DType int64{0, 64, 1};
  const TensorDesc& x = call.inputs[0];
  const auto attrs = attrs_of<Axes>(call);
  NPU_TRY(attrs.check(x.rank));
  NPU_TRY(expect_dtype(call.outputs[0], int64, "the output"));
  NPU_TRY(check_tensors(row, type, call, attrs.reduced(x.rank)));
  const bool is_one_axis = std::popcount(attrs.reduced(x.rank)) <= 1;
  if (is_one_axis || (attrs.axes == 0 && is_contiguous(x))) return {};
  if (attrs.axes == 0) return not_contiguous(x, "x, of whose elements a place is wanted,");
  return Status::not_implemented(std::string(row.name) + " takes one axis or all, not the bits " +
                                 std::to_string(attrs.axes));
}

}  // namespace npu::reduce
