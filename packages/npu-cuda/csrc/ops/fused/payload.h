// The attributes of a Fused op: a list of pointwise ops over numbered tensors. The numbers are those of the
// inputs of the call, then of its outputs, then of temporaries, which have no memory. Little-endian words of
// 32 bits:
//
//   temporaries, steps
//   of each temporary: code, bits            its dtype
//   of each step: kind, inputs, outputs, schema, bytes
//                 the numbers of its inputs and outputs
//                 its attributes, filled up to whole words
#pragma once

#include <vector>

#include "core/call.h"
#include "core/kernel.h"
#include "core/op_info.h"

namespace npu::fusion {

struct Header {
  uint32_t temporaries = 0, steps = 0;
  static std::vector<AttrField> fields() {
    return {field("temporaries", &Header::temporaries), field("steps", &Header::steps)};
  }
};

struct Step {
  OpKind kind;
  int num_inputs = 0;
  std::vector<uint32_t> tensors;  // inputs, then outputs
  AttrBlob attrs{};               // in the payload
};

struct Payload {
  std::vector<DType> temporaries;
  std::vector<Step> steps;
};

// InvalidArgument where it ends too early or too late, or has a number of no tensor.
Status read_payload(const OpCall& call, Payload* payload);

}  // namespace npu::fusion
