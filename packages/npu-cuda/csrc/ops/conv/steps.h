// Pointwise ops that follow a convolution on the host, on the sums of some pixels and channels while these are in the
// cache: the steps of a Fused op (ops/fused/following_call.h).
#pragma once

#include "ops/conv/conv.h"
#include "ops/fused/following_call.h"
#include "ops/fused/plan.h"

namespace npu::conv {

// The call of the Fused op in one of PackedConv.
struct StepsCall : fusion::FollowingCall {
  explicit StepsCall(const OpCall& whole);
};

class Steps {
 public:
  // NotImplemented with the reason where the pixels of a tensor are not a row with one stride.
  Status make(const OpCall& fused, int64_t columns);

  // Pixels of an image from one on, and channels from one on. `sums`: rows of `columns` numbers.
  struct Part {
    int64_t image, pixel, pixels, channel, channels;
    float* sums;
  };
  void run(const OpCall& fused, const Part& part) const;

 private:
  struct Strides {
    int64_t image, pixel, channel;  // in elements
  };

  fusion::Plan plan_;
  pointwise::HostCall window_{};
  Strides strides_[pointwise::kMaxOperands] = {};
};

}  // namespace npu::conv
