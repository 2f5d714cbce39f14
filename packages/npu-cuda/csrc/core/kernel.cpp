#include "core/kernel.h"

namespace npu {
namespace {

class FunctionKernel final : public Kernel {
 public:
  FunctionKernel(KernelTraits traits, KernelFunctions functions)
      : Kernel(std::move(traits)), functions_(functions) {}

  Status supported(const OpCall& call) const override { return functions_.supported(call); }
  Status launch(const OpCall& call) const override { return functions_.launch(call); }
  uint64_t workspace_bytes(const OpCall& call) const override {
    return functions_.workspace_bytes ? functions_.workspace_bytes(call) : 0;
  }
  Status prepare(const OpCall& call, void** state) const override {
    *state = nullptr;
    return functions_.prepare ? functions_.prepare(call, state) : Status();
  }
  Cost cost(const OpCall& call) const override { return functions_.cost ? functions_.cost(call) : Kernel::cost(call); }

 private:
  KernelFunctions functions_;
};

}  // namespace

KernelPtr make_kernel(KernelTraits traits, KernelFunctions functions, DType input_dtype) {
  traits.input_dtype = input_dtype;
  return std::make_shared<FunctionKernel>(std::move(traits), functions);
}

}  // namespace npu
