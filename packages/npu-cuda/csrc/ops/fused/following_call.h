// The call of a Fused op in that of another op, whose result its steps go on with: its first input is that result, the
// others follow those of the op itself, as its header follows their attributes.
#pragma once

#include <algorithm>

#include "ops/fused/payload.h"
#include "ops/pointwise/nest.h"

namespace npu::fusion {

struct FollowingCall {
  OpCall call;
  TensorDesc inputs[pointwise::kMaxOperands + 1];

  // `own_inputs`, `own_bytes`: of the op itself, and of its attributes. Its result has the shape of the first output.
  FollowingCall(const OpCall& whole, int own_inputs, uint32_t own_bytes, DType result) : call(whole) {
    inputs[0] = whole.outputs[0];
    inputs[0].dtype = result;
    std::copy(whole.inputs + own_inputs, whole.inputs + whole.num_inputs, inputs + 1);
    call.num_inputs = 1 + whole.num_inputs - own_inputs;
    call.inputs = inputs;
    call.attrs.data = static_cast<const char*>(whole.attrs.data) + own_bytes;
    call.attrs.bytes -= own_bytes;
  }
  FollowingCall(const FollowingCall&) = delete;
};

}  // namespace npu::fusion
