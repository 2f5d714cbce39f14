// Workspace of single op calls: blocks that grow, per device and stream, reused by the next call there. Those
// of calls that are captured belong to the graph. Programs plan theirs in the arena instead.
#pragma once

#include "core/device.h"

namespace npu {

// Bytes that a call may use: what cuBLASLt advises for Hopper.
inline constexpr uint64_t kWorkspaceLimit = uint64_t{32} << 20;

// The workspace of one call, until the end of a block. A call that a kernel makes while it runs has another one.
class EagerWorkspace {
 public:
  EagerWorkspace() = default;
  EagerWorkspace(const EagerWorkspace&) = delete;
  EagerWorkspace& operator=(const EagerWorkspace&) = delete;
  ~EagerWorkspace() {
    if (is_taken_) give_back();
  }
  // Memory of at least this size for a launch on this stream; null for 0 bytes. Called once.
  Status take(Device* device, void* stream, uint64_t bytes, void** out) {
    *out = nullptr;
    return bytes == 0 ? Status() : take_block(device, stream, bytes, out);
  }

 private:
  Status take_block(Device* device, void* stream, uint64_t bytes, void** out);
  static void give_back();

  bool is_taken_ = false;
};

// Frees the blocks of a stream that goes away, after its work is done.
void drop_workspace(Device* device, void* stream);

}  // namespace npu
