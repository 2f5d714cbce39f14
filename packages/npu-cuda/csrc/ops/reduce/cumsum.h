// cumsum: y[i] = x[0] + ... + x[i] along an axis. Real numbers are summed in float64, integers and bool in
// int64.
#pragma once

#include "ops/reduce/op.h"

namespace npu::reduce {

struct Cumsum {
  int64_t axis = -1;

  static std::vector<AttrField> fields() { return {field("axis", &Cumsum::axis)}; }
  // The bit of the axis.
  uint64_t axes(int rank) const { return rank == 0 ? 0 : uint64_t{1} << (axis < 0 ? axis + rank : axis); }

  static constexpr Row row{"Cumsum", OpKind{218}, kInt64 | kFloat64 | pointwise::kConverts, "(V x)", "(y)",
                           "CSUM", ""};
};

OpInfo cumsum_info();
Status check_cumsum(Class type, const OpCall& call);

template <Class type>
Status supported_cumsum(const OpCall& call) { return check_cumsum(type, call); }

std::vector<KernelPtr> cumsum_host_kernels();
std::vector<KernelPtr> cumsum_cuda_kernels();

}  // namespace npu::reduce
