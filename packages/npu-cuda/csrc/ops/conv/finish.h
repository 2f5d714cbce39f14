// Steps of a convolution that are simple enough for its registers: what becomes of sums before they are stored. So they are
// not stored to be read again.
#pragma once

#include "ops/pointwise/op.h"

namespace npu::conv {

// Perhaps another tensor is added, then an activation computed.
struct Finish {
  enum class Activation : uint8_t { kNone, kRelu, kClamp, kHardswish };

  Activation activation = Activation::kNone;
  pointwise::Bounds bounds{};
  bool has_addend = false;
  uintptr_t to_addend = 0;  // bytes, from where a sum is stored

  const float* addend_of(const float* to) const {
    return reinterpret_cast<const float*>(reinterpret_cast<uintptr_t>(to) + to_addend);
  }

  // Calls each(f) for the activation f of a vector of numbers, a Value.
  template <class Each>
  NPU_INLINE void activate(Each each) const {
    namespace op = pointwise::op;
    switch (activation) {
      case Activation::kNone: return;
      case Activation::kRelu: return each([](auto x) { return op::EltwiseRelu::at({}, x).of[0]; });
      case Activation::kClamp: return each([this](auto x) { return op::Clamp::at(bounds, x).of[0]; });
      case Activation::kHardswish: return each([](auto x) { return op::Hardswish::at({}, x).of[0]; });
    }
  }
};

}  // namespace npu::conv
