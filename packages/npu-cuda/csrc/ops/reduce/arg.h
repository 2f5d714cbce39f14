// argmax, argmin: the place of the largest or smallest element along an axis, or among all, in int64; NaN
// counts as the largest and as the smallest, and of equal ones it is the first.
#pragma once

#include "ops/reduce/op.h"

namespace npu::reduce {

struct Argmax {
  using Value = op::Amax;
  static constexpr Row row{"Argmax", OpKind{216}, kTruth | kNotEmpty, "(V x)", "(y)", "RDAX", ""};
};
struct Argmin {
  using Value = op::Amin;
  static constexpr Row row{"Argmin", OpKind{217}, kTruth | kNotEmpty, "(V x)", "(y)", "RDAM", ""};
};

// x comes before the best one so far.
template <class Fn, class Lane>
NPU_INLINE bool is_better(Lane x, Lane best) {
  if (x != x) return best == best;
  return std::is_same_v<Fn, Argmax> ? x > best : x < best;
}

std::vector<OpInfo> arg_infos();
Status check_arg(const Row& row, Class type, const OpCall& call);

template <class Fn, Class type>
Status supported_arg(const OpCall& call) { return check_arg(Fn::row, type, call); }

std::vector<KernelPtr> arg_host_kernels();
std::vector<KernelPtr> arg_cuda_kernels();

}  // namespace npu::reduce
