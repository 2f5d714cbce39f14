// Pointwise ops that follow a product on the host, on each part of it while that is in the first caches: the steps of a
// Fused op (ops/fused/payload.h), whose first input is the product.
#pragma once

#include "ops/fused/plan.h"
#include "ops/gemm/product.h"

namespace npu::gemm {

class Steps {
 public:
  // `fused`: the call of the Fused op. Its first input is described as the product in rows of `width` numbers.
  Status make(const OpCall& fused, int64_t width);

  // Where they can be computed in registers, in this call.
  std::optional<fusion::RegisterSteps> in_registers(const OpCall& fused) const { return plan_.register_steps(fused); }

  // The tensors of one launch, of the same description: the inputs after the product, and the outputs.
  struct Launch {
    const Steps* steps;
    void* data[pointwise::kMaxOperands];

    Launch(const Steps& steps, const TensorDesc* inputs, const TensorDesc* outputs);
    Finish finish() const { return {run, this}; }
  };

 private:
  static void run(const void* launch, const Problem& problem, const Part& part);

  fusion::Plan plan_;
  pointwise::HostCall window_{};
  int inputs_ = 0, count_ = 0;
  Operand operands_[pointwise::kMaxOperands];  // without addresses; the first one is the product
  Problem rows_{};  // which of them the operands have in order: fewer than the product where one is broadcast
};

}  // namespace npu::gemm
