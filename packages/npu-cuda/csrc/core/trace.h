// Trace: the last launches, for inspection. A ring buffer of fixed size, off by default; while it is off a
// launch pays for one relaxed load. Every kernel is launched by traced_launch.
#pragma once

#include <atomic>
#include <string>
#include <vector>

#include "core/kernel.h"

namespace npu {

struct TraceEvent {
  uint64_t number;       // counts from 0 since trace_start, also those that the ring has dropped
  int64_t start_ns;      // of the steady clock
  int64_t duration_ns;   // on the host: of the launch, not of the device's work
  OpKind kind;
  std::string op;
  std::string kernel_id;
  std::string tensors;   // "(float32[2, 3]) -> float32[2, 3]"
  uintptr_t stream;
  StatusCode status;
};

// What marks ranges in a profiler.
struct TraceRanges {
  void (*push)(const char* name);
  void (*pop)();
};

extern std::atomic<bool> trace_is_on;

// Starts anew with at least one place. With `nvtx` each launch is a range of NVTX, too; Unavailable where this build
// has none.
Status trace_start(size_t capacity, bool nvtx = false);
void trace_stop();
std::vector<TraceEvent> trace_events();  // oldest first

// Null where this build has no NVTX.
const TraceRanges* nvtx_ranges();

// Launches and writes it down.
Status launch_and_trace(const Kernel& kernel, const OpCall& call);

inline Status traced_launch(const Kernel& kernel, const OpCall& call) {
  if (!trace_is_on.load(std::memory_order_relaxed)) [[likely]] return kernel.launch(call);
  return launch_and_trace(kernel, call);
}

}  // namespace npu
