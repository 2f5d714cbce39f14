#include "core/eager_workspace.h"

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <tuple>
#include <vector>

#include "core/graph.h"

namespace npu {
namespace {

struct Block {
  void* data = nullptr;
  uint64_t bytes = 0;
};

// A block that launches of a capture use: its graph keeps it.
struct CapturedBlock : Block {
  explicit CapturedBlock(Device* of) : device(of) {}
  CapturedBlock(const CapturedBlock&) = delete;
  CapturedBlock& operator=(const CapturedBlock&) = delete;
  ~CapturedBlock() {
    if (data) device->free(data);
  }
  Device* device;
};

struct HostBlock {
  std::unique_ptr<char[]> memory;
  uint64_t bytes = 0;
};

std::mutex guard;
thread_local size_t depth = 0;  // calls of this thread that have a workspace now, each made by a kernel of the one before

using Place = std::tuple<Device*, void*, size_t>;               // device, stream, depth
using CapturedPlace = std::tuple<Device*, uint64_t, void*, size_t>;  // device, capture, stream, depth

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

std::map<CapturedPlace, std::weak_ptr<CapturedBlock>>& captured_blocks() {
  static auto* all = new std::map<CapturedPlace, std::weak_ptr<CapturedBlock>>();
  return *all;
}

// What a stream captures runs in order, so that the calls of one capture share their blocks.
Status captured_block(Device* device, void* stream, uint64_t bytes, void** out) {
  uint64_t capture = 0;
  NPU_TRY(device->find_capture(stream, &capture));
  std::shared_ptr<CapturedBlock> block;
  const std::lock_guard lock(guard);
  std::erase_if(captured_blocks(), [](const auto& entry) { return entry.second.expired(); });
  std::weak_ptr<CapturedBlock>& known = captured_blocks()[{device, capture, stream, depth}];
  block = known.lock();
  if (!block || block->bytes < bytes) {
    block = std::make_shared<CapturedBlock>(device);
    NPU_TRY(device->allocate_in_capture(bytes, &block->data));
    block->bytes = bytes;
    NPU_TRY(keep_in_graph(device, stream, block));
    known = block;
  }
  return *out = block->data, Status();
}

Status stream_block(Device* device, void* stream, uint64_t bytes, void** out) {
  const std::lock_guard lock(guard);
  std::vector<Block>& all = blocks()[{device, stream, depth}];
  if (all.empty() || all.back().bytes < bytes) NPU_TRY(grow(device, bytes, all));
  return *out = all.back().data, Status();
}

}  // namespace

Status EagerWorkspace::take_block(Device* device, void* stream, uint64_t bytes, void** out) {
  bool is_capturing = false;
  NPU_TRY(device->is_capturing(stream, &is_capturing));
  if (is_capturing) NPU_TRY(captured_block(device, stream, bytes, out));
  else if (device->type() == DeviceType::Host) NPU_TRY(host_block(bytes, out));
  else NPU_TRY(stream_block(device, stream, bytes, out));
  ++depth;
  is_taken_ = true;
  return {};
}

void EagerWorkspace::give_back() { --depth; }

void drop_workspace(Device* device, void* stream) {
  const std::lock_guard lock(guard);
  auto next = blocks().lower_bound({device, stream, 0});
  while (next != blocks().end() && std::get<0>(next->first) == device && std::get<1>(next->first) == stream) {
    for (const Block& block : next->second) device->free(block.data);
    next = blocks().erase(next);
  }
}

}  // namespace npu
