// Dispatch: from an op and tensors to a launch. Each check fails with its own Status: errors of the caller are
// InvalidArgument; unsupported calls are NotImplemented, which lists every kernel with the reason why it refused.
#pragma once

#include "core/call_memo.h"
#include "core/device.h"

namespace npu {

struct SelectionRules {
  bool deterministic = false;      // only kernels that give the same bits each time
  uint64_t workspace_limit = INT64_MAX;
};

struct Refusal {
  std::string kernel_id;
  std::string reason;
};

struct Selection {
  KernelPtr kernel;  // null: none takes the call
  uint64_t workspace_bytes = 0;
  std::vector<Refusal> refusals;  // of the kernels that were asked before
};

// Ok and the workspace that it needs, or NotImplemented with the reason why this kernel does not take the call.
Status takes(const Kernel& kernel, const OpCall& call, const SelectionRules& rules, uint64_t* workspace_bytes);
// The first kernel that takes the call, which has been checked.
Selection select(const OpInfo& op, const OpCall& call, DeviceType device, const SelectionRules& rules);
// NotImplemented, with all refusals.
Status refused(const OpInfo& op, const OpCall& call, const Selection& selection, DeviceType device);

// Runs an op on the device of its tensors. call.stream must be set: null is InvalidArgument.
Status dispatch(OpKind kind, OpCall call);
// Dispatches a call of tensors like those of the memo: by its kernel, if all else is like it, too.
Status dispatch_again(const CallMemo& memo, OpKind kind, OpCall call);
// Runs this kernel, if it supports the call.
Status launch_by_id(const std::string& kernel_id, OpCall call);

}  // namespace npu
