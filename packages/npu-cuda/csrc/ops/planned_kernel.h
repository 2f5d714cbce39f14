// Kernels of the host that make a plan of the description of a call, once where a program keeps it: a launch of a small
// op takes less time than its plan.
#pragma once

#include <algorithm>
#include <string>
#include <utility>

#include "core/kernel.h"

namespace npu {

// `Plan` has run(call), for calls of the description that it was made of, from any thread, and workspace_bytes().
template <class Plan>
class PlannedKernel final : public Kernel {
 public:
  struct Functions {
    Status (*check)(const OpCall& call);
    Plan (*plan)(const OpCall& call);
    Cost (*cost)(const OpCall& call);
  };

  PlannedKernel(OpKind kind, std::string id, Functions functions, int32_t priority = 0)
      : Kernel({.kind = kind, .id = std::move(id), .device = DeviceType::Host, .priority = priority}), functions_(functions) {}

  Status supported(const OpCall& call) const override { return functions_.check(call); }
  uint64_t workspace_bytes(const OpCall& call) const override { return functions_.plan(call).workspace_bytes(); }
  Cost cost(const OpCall& call) const override { return functions_.cost(call); }
  Status prepare(const OpCall& call, void** state) const override {
    return *state = new Plan(functions_.plan(call)), Status();
  }
  void release(void* state) const noexcept override { delete static_cast<Plan*>(state); }

  Status launch(const OpCall& call) const override {
    const auto is_empty = [](const TensorDesc& tensor) { return tensor.numel == 0; };
    if (std::all_of(call.outputs, call.outputs + call.num_outputs, is_empty)) return {};
    if (call.state) return static_cast<const Plan*>(call.state)->run(call), Status();
    return functions_.plan(call).run(call), Status();
  }

 private:
  Functions functions_;
};

}  // namespace npu
