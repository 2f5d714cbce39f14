// The pointwise ops of the host: an op computed in one class is one of them. And, for code that is made at run
// time, the instructions of each.
#pragma once

#include "core/kernel.h"
#include "ops/pointwise/host_call.h"
#include "ops/pointwise/recorder.h"

namespace npu::pointwise {

inline constexpr size_t kMostAttrBytes = 64;

struct HostOp {
  Row row;
  Class type;
  ComputeRow compute;
  void (*load_attrs)(const OpCall& call, void* attrs);  // for compute; at most kMostAttrBytes
  Recording (*record)(const void* attrs);
  KernelFunctions functions;  // of the op alone
};

// Returns one HostOp per op and class; those of one op are in the order of their classes.
const std::vector<HostOp>& host_ops();

// The parts of it, which are compiled apart.
std::vector<HostOp> arithmetic_host_ops();
std::vector<HostOp> training_host_ops();

}  // namespace npu::pointwise
