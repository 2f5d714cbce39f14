// Trace: the last launches, for people who look for what ran. A ring of fixed size, off by default; while it is off a
// launch pays for one relaxed load.
#pragma once

#include <atomic>
#include <string>
#include <vector>

#include "core/call.h"

namespace npu {

class Kernel;

struct TraceEvent {
  uint64_t number;         // counts from 0 since trace_start, also those that the ring has dropped
  int64_t start_ns;        // of the steady clock
  int64_t duration_ns;     // on the host: of the launch, not of the device's work
  std::string op;
  std::string kernel_id;
  std::string tensors;     // "float32[2, 3] -> float32[2, 3]"
};

extern std::atomic<bool> trace_is_on;

void trace_start(size_t capacity);  // drops what was there
void trace_stop();
std::vector<TraceEvent> trace_events();  // oldest first
void trace_add(const Kernel& kernel, const OpCall& call, int64_t start_ns, int64_t duration_ns);

}  // namespace npu
