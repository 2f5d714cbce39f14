// Steps behind a product or a convolution that are simple enough for its registers: what becomes of sums before they are
// stored. So they are not stored to be read again.
#pragma once

#include <optional>

#include "ops/fused/chain.h"
#include "ops/pointwise/op.h"

namespace npu::fusion {

// Perhaps another tensor is added, then an activation computed.
struct RegisterSteps {
  enum class Activation : uint8_t { kNone, kRelu, kClamp, kHardswish };

  size_t addend = 0;  // of the inputs; 0: nothing is added
  Activation activation = Activation::kNone;
  pointwise::Bounds bounds{};
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

  // Applies the steps to a tile (ops/gemm/tile.h) whose rows will be stored at `to`.
  template <int kRows, class Tile>
  NPU_INLINE void finish(Tile& tile, float* const* to, int64_t columns) const {
    if (addend > 0) {
      const float* addends[kRows];
      for (int i = 0; i < kRows; ++i) addends[i] = addend_of(to[i]);
      tile.add_rows(addends, columns);
    }
    activate([&](auto f) { tile.each(f); });
  }
};

// Returns the steps of a chain of an addition, an activation or both, of float32 and with one result; nothing for other
// chains. The address of the addend is left open.
std::optional<RegisterSteps> register_steps_of(const Chain& chain, const OpCall& call);

}  // namespace npu::fusion
