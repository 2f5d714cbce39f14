// CallMemo: the last call of an op on a thread. A call like it, of the same attributes and of tensors that differ in
// their addresses alone and are as aligned, goes to the same kernel: no kernel is asked again.
#pragma once

#include "core/registry.h"

namespace npu {

class Device;

struct CallMemo {
  static constexpr int kMostTensors = 6;
  static constexpr uint32_t kMostAttrs = 64;

  uint64_t version = 0;  // of the registry that was asked; 0: there was no call
  uint32_t changes = 0;  // of this memo, for those who read it while Python runs
  OpKind kind{};
  const OpInfo* op = nullptr;
  const KernelPtr* kernel = nullptr;  // in the registry of this version
  Device* device = nullptr;
  uint64_t workspace_bytes = 0;
  int64_t bytes = 0;  // of all tensors
  int32_t num_inputs = 0;
  int32_t num_outputs = 0;
  uint32_t schema_id = 0;
  uint32_t attrs_bytes = 0;
  char attrs[kMostAttrs]{};
  TensorDesc tensors[kMostTensors]{};  // inputs, then outputs; their data is of no meaning

  // Whether a call has these numbers of tensors and these attributes. Who asks has compared the tensors.
  bool is_like(uint64_t current, OpKind other_kind, const OpCall& call) const {
    return version == current && kind == other_kind && num_inputs == call.num_inputs &&
           num_outputs == call.num_outputs && schema_id == call.attrs.schema_id && attrs_bytes == call.attrs.bytes &&
           (attrs_bytes == 0 || std::memcmp(attrs, call.attrs.data, attrs_bytes) == 0);
  }
};

// The memo of this thread where a call of this kind is kept; it may hold that of another kind.
CallMemo& memo_of(OpKind kind);

// The alignment of an address, as TensorDesc has it.
inline uint32_t alignment_of(const void* data) {
  const auto address = reinterpret_cast<uintptr_t>(data);
  return address ? static_cast<uint32_t>(std::min<uintptr_t>(address & (~address + 1), 256)) : 256;
}

}  // namespace npu
