// Chain: the steps of a Fused op, checked: an op of the tables for each, in the class that it is computed in. The rows of
// the host (plan.h) and the text for CUDA (cuda_text.h) are made from it.
#pragma once

#include <array>
#include <deque>
#include <vector>

#include "ops/fused/payload.h"
#include "ops/pointwise/host_ops.h"

namespace npu::fusion {

struct ChainTensor {
  TensorDesc desc;
  pointwise::Element element;
  bool is_written = false;
  int last_use = -1;  // step
};

struct ChainStep {
  const pointwise::HostOp* op;
  char* attrs;
  std::vector<uint32_t> inputs, outputs;
};

struct alignas(8) StepAttrs : std::array<char, pointwise::kMostAttrBytes> {};

class Chain {
 public:
  Chain() = default;
  Chain(const Chain&) = delete;
  Chain& operator=(const Chain&) = delete;

  // NotImplemented with the reason where it is no list of pointwise ops over one shape.
  Status make(const OpCall& call);

  std::vector<ChainTensor> tensors;  // of the call, then temporaries
  size_t externals = 0, inputs = 0;  // tensors of the call; its inputs
  std::vector<ChainStep> steps;

 private:
  void add_tensors(const OpCall& call, const Payload& payload);
  Status add_step(const OpCall& call, const Step& step);

  std::deque<StepAttrs> attrs_;  // ChainStep::attrs points here
};

}  // namespace npu::fusion
