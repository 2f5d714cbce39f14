#include "ops/fused/fused.h"

#include "ops/fused/plan.h"

namespace npu {
namespace {

using fusion::Plan;

class FusedKernel final : public Kernel {
 public:
  FusedKernel() : Kernel({.kind = kFused, .id = "fused.host", .device = DeviceType::Host}) {}

  Status supported(const OpCall& call) const override {
    Plan plan;
    return plan.make(call);
  }

  Status prepare(const OpCall& call, void** state) const override {
    auto plan = std::make_unique<Plan>();
    NPU_TRY(plan->make(call));
    return *state = plan.release(), Status();
  }
  void release(void* state) const noexcept override { delete static_cast<Plan*>(state); }

  Status launch(const OpCall& call) const override {
    if (call.outputs[0].numel == 0) return {};
    if (call.state) return static_cast<const Plan*>(call.state)->run(call), Status();
    Plan plan;
    NPU_TRY(plan.make(call));
    return plan.run(call), Status();
  }
};

}  // namespace

OpInfo fused_info() {
  AttrSchema schema = make_schema<fusion::Header>("FUSE", fusion::Header::fields());
  schema.is_open = true;
  return {.kind = kFused, .name = "Fused", .min_inputs = 0, .max_inputs = pointwise::kMaxOperands - 1, .num_outputs = 1,
          .max_outputs = kMaxOutputs, .schema = std::move(schema), .attrs_required = true};
}

std::vector<KernelPtr> fused_host_kernels() { return {std::make_shared<FusedKernel>()}; }

}  // namespace npu
