// Pointwise ops that follow a convolution on the host, on the sums of some pixels and channels while these are in the
// cache: the steps of a Fused op (ops/fused/following_call.h).
#pragma once

#include <memory>
#include <optional>

#include "ops/conv/bands.h"
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
  // Where they can be computed in registers; sums are then stored where the result is to be.
  std::optional<fusion::RegisterSteps> in_registers(const OpCall& fused) const { return plan_.register_steps(fused); }

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
  bool is_by_channel_ = false;  // rows of the window are pixels of one channel, else channels of one pixel
  pointwise::HostCall window_{};
  Strides strides_[pointwise::kMaxOperands] = {};
};

// The steps of a call of PackedConv that is supported; null where it has none.
std::shared_ptr<const Steps> steps_of(const OpCall& call);

// What becomes of the sums of a launch: tensors of steps, or the result.
class Results {
 public:
  Results(const OpCall& call, const Geometry& geometry, const Steps* steps);

  // Sums are stored as the result, with the channels of a pixel side by side, after these steps: none need be written.
  bool are_direct() const { return are_direct_; }
  // Null where there are none.
  const fusion::RegisterSteps* in_registers() const { return in_registers_ ? &*in_registers_ : nullptr; }
  // Writes pixels of a band, from `first` on. `sums`: rows of numbers of all channels, of which those of some are written.
  void write(const Bands& bands, const BandPlace& place, int64_t first, int64_t pixels, int64_t channel,
             int64_t channels, float* sums) const;

 private:
  // Of pixels of one row, `stride` apart: channel by channel.
  void write_planes(const float* sums, int64_t pixels, int64_t channels, pointwise::WriteRow write, char* to,
                    int64_t stride) const;

  const TensorDesc& y_;
  const Geometry& geometry_;
  const Steps* steps_;
  std::optional<StepsCall> fused_;
  std::optional<fusion::RegisterSteps> in_registers_;
  bool are_direct_ = false;
};

}  // namespace npu::conv
