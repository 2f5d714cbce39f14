// Reductions of all elements of a list of tensors to one number: in parts of kPart elements, whose results are joined in
// their order, so that neither threads nor blocks change a bit. Computed in float64.
#pragma once

#include <cmath>

#include "core/op_info.h"
#include "ops/pointwise/elements.h"
#include "ops/pointwise/value.h"

namespace npu::lists {

// The square root of the sum of squares.
struct GlobalNorm {
  static constexpr OpKind kKind{406};
  static constexpr const char* kName = "GlobalNorm";
  static constexpr int kSingles = 0;
  static NPU_INLINE double step(double state, double x) { return state + x * x; }
  static NPU_INLINE double finish(double state, double) { return std::sqrt(state); }
};

// 1 if an element is infinite or NaN; else what the single input has.
struct FoundInf {
  static constexpr OpKind kKind{407};
  static constexpr const char* kName = "FoundInf";
  static constexpr int kSingles = 1;
  static NPU_INLINE double step(double state, double x) { return x - x == 0 ? state : 1; }
  static NPU_INLINE double finish(double state, double before) { return state > 0 ? 1 : before; }
};

// The tensors of the list in a call.
struct ReducedList {
  const TensorDesc* tensors;
  int length;
};

template <class Fn>
ReducedList list_of(const OpCall& call) { return {call.inputs + Fn::kSingles, call.num_inputs - Fn::kSingles}; }

// One tensor as a call that only writes it: so that a nest has its axes in the order of memory.
inline OpCall as_output(const TensorDesc& tensor) {
  OpCall call{};
  call.outputs = &tensor;
  call.num_outputs = 1;
  return call;
}

// Ok for real numbers, where the single inputs and the result are one.
Status expect_real_list(const OpCall& call, int singles);

std::vector<OpInfo> reduction_infos();
std::vector<KernelPtr> reduction_host_kernels();
std::vector<KernelPtr> reduction_cuda_kernels();

}  // namespace npu::lists
