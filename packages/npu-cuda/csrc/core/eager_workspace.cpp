#include "core/eager_workspace.h"

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <tuple>
#include <vector>

namespace npu {
namespace {

struct Block {
  void* data = nullptr;
  uint64_t bytes = 0;
  bool is_in_a_graph = false;  // never freed: the graph has its address
};

struct HostBlock {
  std::unique_ptr<char[]> memory;
  uint64_t bytes = 0;
};

std::mutex guard;
thread_local size_t depth = 0;  // calls of this thread that have a workspace now, each made by a kernel of the one before

using Place = std::tuple<Device*, void*, size_t>;  // device, stream, depth

// The last block of a place is the one in use. Smaller ones stay until the stream goes: launches of another thread may
// be about to use them. As each is twice the one before, they are no more than it.
std::map<Place, std::vector<Block>>& blocks() {
  static auto* all = new std::map<Place, std::vector<Block>>();  // outlives every user
  return *all;
}

Status grow(Device* device, uint64_t bytes, std::vector<Block>& all) {
  const uint64_t size = all.empty() ? bytes : std::max(bytes, 2 * all.back().bytes);
  void* data = nullptr;
  NPU_TRY(device->allocate(size, &data));
  all.push_back({data, size});
  return {};
}

// Launches on the host run on the thread that calls: each has blocks of its own.
Status host_block(uint64_t bytes, void** out) {
  thread_local std::vector<HostBlock> all;
  if (all.size() <= depth) all.resize(depth + 1);
  HostBlock& block = all[depth];
  if (block.bytes < bytes) {
    block = {};
    block.memory.reset(new (std::nothrow) char[bytes + 255]);
    if (!block.memory) {
      return Status::device_error("host: out of memory, allocating " + std::to_string(bytes) + " bytes of workspace");
    }
    block.bytes = bytes;
  }
  return *out = reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(block.memory.get()) + 255) / 256 * 256), Status();
}

}  // namespace

Status EagerWorkspace::take_block(Device* device, void* stream, uint64_t bytes, void** out) {
  bool is_capturing = false;
  NPU_TRY(device->is_capturing(stream, &is_capturing));
  const bool is_host = device->type() == DeviceType::Host;
  if (is_host && !is_capturing) {
    NPU_TRY(host_block(bytes, out));
  } else {
    const std::lock_guard lock(guard);
    std::vector<Block>& all = blocks()[{device, stream, depth}];
    const bool is_too_small = all.empty() || all.back().bytes < bytes;
    if (is_capturing && (is_host || is_too_small)) {
      return Status::invalid("it needs " + std::to_string(bytes) +
                             " bytes of workspace, which cannot be had while the stream captures; use a Program, which "
                             "plans its workspace");
    }
    if (is_too_small) NPU_TRY(grow(device, bytes, all));
    all.back().is_in_a_graph |= is_capturing;
    *out = all.back().data;
  }
  ++depth;
  is_taken_ = true;
  return {};
}

void EagerWorkspace::give_back() { --depth; }

void drop_workspace(Device* device, void* stream) {
  const std::lock_guard lock(guard);
  auto next = blocks().lower_bound({device, stream, 0});
  while (next != blocks().end() && std::get<0>(next->first) == device && std::get<1>(next->first) == stream) {
    for (const Block& block : next->second) {
      if (!block.is_in_a_graph) device->free(block.data);
    }
    next = blocks().erase(next);
  }
}

}  // namespace npu
