// The steps of a Fused op over rows of a block: which row of the first cache holds which tensor, in which
// number type. Numbers between steps are rounded as their tensors would round them, so that the results are
// those of the ops one by one, to the bit.
#pragma once

#include <array>
#include <deque>
#include <vector>

#include "ops/fused/payload.h"
#include "ops/pointwise/host_ops.h"

namespace npu::fusion {

class Plan {
 public:
  Plan() = default;
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  // NotImplemented with the reason where it is no list of pointwise ops, each with a kernel on the host.
  Status make(const OpCall& call);
  // Of a call of the same description. Of any thread.
  void run(const OpCall& call) const { pointwise::run_on_host(host_call_, call); }
  // The steps over other loops, for pointwise::run_window. They live as long as the plan.
  pointwise::HostCall over(const pointwise::Nest& nest, const OpCall& call) const;

 private:
  struct Tensor {
    TensorDesc desc;
    pointwise::Element element;
    pointwise::Class type{};  // of the numbers in its row
    int row = -1;
    bool is_written = false;
    int last_use = -1;  // step
    std::vector<std::pair<pointwise::Class, int>> converted{};  // rows of other types
  };
  struct PlannedStep {
    const pointwise::HostOp* op;
    char* attrs;
    std::vector<uint32_t> inputs, outputs;
  };
  struct alignas(8) Attrs : std::array<char, pointwise::kMostAttrBytes> {};

  void add_tensors(const OpCall& call, const Payload& payload);
  Status add_step(const OpCall& call, const Step& step);
  Status choose_types(const OpCall& call);
  Status emit(const PlannedStep& planned);
  Status input_row(Tensor* tensor, pointwise::Class type, uint8_t* row);
  Status output_row(Tensor* tensor, const pointwise::HostOp& op, uint8_t* row);
  void convert(const Tensor& tensor, pointwise::Class from, int from_row, pointwise::Class to, int to_row);
  Status take_row(int* row);
  void release_rows(int step);

  std::vector<Tensor> tensors_;
  size_t externals_ = 0;  // tensors of the call
  size_t num_inputs_ = 0;
  std::vector<PlannedStep> planned_;
  std::vector<int> free_rows_;
  std::deque<Attrs> attrs_;  // HostStep::attrs points here
  std::vector<pointwise::HostStep> steps_;
  pointwise::HostCall host_call_{};
};

}  // namespace npu::fusion
