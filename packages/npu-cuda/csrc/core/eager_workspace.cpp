#include "core/eager_workspace.h"

#include <atomic>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace npu {
namespace {

struct Block {
  void* data = nullptr;
  uint64_t bytes = 0;
  bool is_in_a_graph = false;  // never freed: the graph has its address
};

std::atomic<uint64_t> limit{uint64_t{32} << 20};
std::mutex guard;

std::map<std::pair<Device*, void*>, Block>& blocks() {
  static auto* all = new std::map<std::pair<Device*, void*>, Block>();  // outlives every user
  return *all;
}

Status grow(Device* device, void* stream, uint64_t bytes, Block& block) {
  void* data = nullptr;
  NPU_TRY(device->allocate(bytes, &data));
  if (Status status = device->synchronize(stream); !status.ok()) {  // launches that still use the old block
    device->free(data);
    return status;
  }
  if (!block.is_in_a_graph) device->free(block.data);
  block = {data, bytes};
  return {};
}

// Launches on the host run on the thread that calls: each has a block of its own.
void* host_workspace(uint64_t bytes) {
  thread_local std::vector<char> block;
  if (block.size() < bytes + 256) block.resize(bytes + 256);
  return reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(block.data()) + 255) / 256 * 256);
}

}  // namespace

void set_workspace_limit(uint64_t bytes) { limit = bytes; }
uint64_t workspace_limit() { return limit; }

Status eager_workspace(Device* device, void* stream, uint64_t bytes, void** out) {
  *out = nullptr;
  if (bytes == 0) return {};
  bool is_capturing = false;
  NPU_TRY(device->is_capturing(stream, &is_capturing));
  const bool is_host = device->type() == DeviceType::Host;
  if (is_host && !is_capturing) return *out = host_workspace(bytes), Status();
  const std::lock_guard lock(guard);
  Block& block = blocks()[{device, stream}];
  if (is_capturing && (is_host || block.bytes < bytes)) {
    return Status::invalid("it needs " + std::to_string(bytes) +
                           " bytes of workspace, which cannot be had while the stream captures; use a Program, which "
                           "plans its workspace");
  }
  if (block.bytes < bytes) NPU_TRY(grow(device, stream, bytes, block));
  block.is_in_a_graph |= is_capturing;
  *out = block.data;
  return {};
}

void drop_workspace(Device* device, void* stream) {
  const std::lock_guard lock(guard);
  const auto found = blocks().find({device, stream});
  if (found == blocks().end()) return;
  if (!found->second.is_in_a_graph) device->free(found->second.data);
  blocks().erase(found);
}

}  // namespace npu
