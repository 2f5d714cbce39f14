#include "core/trace.h"

#include <chrono>
#include <mutex>

#include "core/op_info.h"
#include "core/registry.h"

namespace npu {
namespace {

struct Ring {
  std::mutex guard;
  std::vector<TraceEvent> events;
  size_t capacity = 0;
  uint64_t count = 0;  // also those that were dropped
};

// Outlives every thread that launches.
Ring& ring() {
  static auto* the_ring = new Ring();
  return *the_ring;
}

std::atomic<const TraceRanges*> ranges{nullptr};

int64_t now_ns() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

std::string name_of(OpKind kind) {
  const OpInfo* op = RegistryReader()->find_op(kind);
  return op ? op->name : std::to_string(static_cast<int32_t>(kind));
}

void add(TraceEvent event) {
  Ring& all = ring();
  const std::lock_guard lock(all.guard);
  if (all.capacity == 0) return;
  event.number = all.count++;
  if (all.events.size() < all.capacity) {
    all.events.push_back(std::move(event));
  } else {
    all.events[size_t(event.number % all.capacity)] = std::move(event);
  }
}

}  // namespace

std::atomic<bool> trace_is_on{false};

#ifndef NPU_WITH_CUDA
const TraceRanges* nvtx_ranges() { return nullptr; }
#endif

Status trace_start(size_t capacity, bool nvtx) {
  if (capacity == 0) return Status::invalid("a trace needs a capacity of at least 1 launch");
  if (nvtx && !nvtx_ranges()) {
    return Status::unavailable("this build has no NVTX: it is built without CUDA, or without nvtx3/nvToolsExt.h");
  }
  Ring& all = ring();
  const std::lock_guard lock(all.guard);
  all.events.clear();
  all.capacity = capacity;
  all.count = 0;
  ranges = nvtx ? nvtx_ranges() : nullptr;
  trace_is_on = true;
  return {};
}

void trace_stop() { trace_is_on = false; }

std::vector<TraceEvent> trace_events() {
  Ring& all = ring();
  const std::lock_guard lock(all.guard);
  const size_t size = all.events.size();
  const size_t oldest = size < all.capacity ? 0 : size_t(all.count % all.capacity);
  std::vector<TraceEvent> events;
  events.reserve(size);
  for (size_t i = 0; i < size; ++i) events.push_back(all.events[(oldest + i) % size]);
  return events;
}

Status launch_and_trace(const Kernel& kernel, const OpCall& call) {
  const TraceRanges* marks = ranges.load();
  if (marks) marks->push(kernel.traits().id.c_str());
  const int64_t start = now_ns();
  Status status = kernel.launch(call);
  const int64_t duration = now_ns() - start;
  if (marks) marks->pop();
  const KernelTraits& traits = kernel.traits();
  add({0, start, duration, traits.kind, name_of(traits.kind), traits.id, text_of(call),
       reinterpret_cast<uintptr_t>(call.stream), status.code()});
  return status;
}

}  // namespace npu
