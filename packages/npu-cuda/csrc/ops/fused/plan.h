// The steps of a Fused op over rows of a block: which row of the first cache holds which tensor, in which
// number type. Numbers between steps are rounded as their tensors would round them, so that the results are
// those of the ops one by one, to the bit.
#pragma once

#include <deque>
#include <vector>

#include "ops/fused/chain.h"
#include "ops/fused/register_steps.h"

namespace npu::fusion {

class Plan {
 public:
  Plan() = default;
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  // NotImplemented with the reason where it is no list of pointwise ops, each with a kernel on the host.
  Status make(const OpCall& call);
  // Runs a call of the same description, from any thread.
  void run(const OpCall& call) const { pointwise::run_on_host(host_call_, call); }
  // Where they can be computed in the registers of a kernel before them, in this call.
  std::optional<RegisterSteps> register_steps(const OpCall& call) const;
  // The steps over other loops, for pointwise::run_window. They live as long as the plan.
  pointwise::HostCall over(const pointwise::Nest& nest, const OpCall& call) const;

 private:
  struct Row {
    pointwise::Class type{};  // of the numbers in it
    int row = -1;
    std::vector<std::pair<pointwise::Class, int>> converted{};  // rows of other types
  };

  void choose_types();
  Status emit(const ChainStep& planned);
  Status input_row(uint32_t tensor, pointwise::Class type, uint8_t* row);
  Status output_row(uint32_t tensor, const pointwise::HostOp& op, uint8_t* row);
  void convert(uint32_t tensor, pointwise::Class from, int from_row, pointwise::Class to, int to_row);
  Status take_row(int* row);
  void release_rows(int step);

  Chain chain_;
  std::vector<Row> rows_;  // of the tensors of the chain
  std::vector<int> free_rows_;
  std::deque<StepAttrs> conversions_;  // HostStep::attrs points here
  std::vector<pointwise::HostStep> steps_;
  pointwise::HostCall host_call_{};
  std::optional<RegisterSteps> register_steps_;  // but for the address of the addend
};

}  // namespace npu::fusion
