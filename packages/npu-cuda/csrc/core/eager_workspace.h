// Workspace of single op calls: one growing block per device and stream, reused by the next call on it. Programs plan
// theirs in the arena instead.
#pragma once

#include "core/device.h"

namespace npu {

// Bytes that a call may use; 32 MiB at first, which is what cuBLASLt advises for Hopper.
void set_workspace_limit(uint64_t bytes);
uint64_t workspace_limit();

// Memory of at least this size for a launch on this stream; null for 0 bytes. InvalidArgument where it would have to
// be allocated while the stream captures.
Status eager_workspace(Device* device, void* stream, uint64_t bytes, void** out);
// Frees the block of a stream that goes away, after its work is done.
void drop_workspace(Device* device, void* stream);

}  // namespace npu
