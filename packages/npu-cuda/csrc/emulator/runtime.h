// What the calls of the emulated runtime share: their frame, the rules of capture, memory, and work on streams.
#pragma once

#include "emulator/runtime_state.h"

namespace npu::emulator {

enum class CallKind {
  Plain,
  Release,  // destroys or ends something: does so even when it fails
  Wait,     // waits for work: also returns the errors of that work
};

// Returns the error of the call. Every call fails once a kernel has failed, as on hardware.
cudaError_t call(const char* name, CallKind kind, const std::function<cudaError_t()>& body);
inline cudaError_t call(const char* name, const std::function<cudaError_t()>& body) {
  return call(name, CallKind::Plain, body);
}

void forget_calls();
void fail_call(const char* name, int64_t k, cudaError_t error);
int64_t calls(const char* name);

// For calls that are unsafe in a capture (cudaMalloc, cudaFree, ...): an error where the mode of a capture, here or on
// another thread, forbids them. The captures that forbade it are invalid from then on.
cudaError_t check_unsafe_call();

// An error where the stream is the legacy stream and a blocking stream is being captured, which it invalidates.
cudaError_t check_legacy_use(cudaStream_t stream);

// For waiting for a stream: never while it is captured.
cudaError_t check_wait(cudaStream_t stream);

// For waiting for the whole device: never while any capture goes on, whatever its mode.
cudaError_t check_device_wait();

// Takes a capture from its stream. The graph goes unless it is kept.
void end_capture(const CapturePtr& capture, bool keep_graph);

void discard_graph(cudaGraph_t graph);

inline constexpr size_t kDeviceBytes = size_t{4} << 30;

size_t live_bytes();

// The allocation that contains an address; end() if there is none.
std::map<const void*, size_t>::const_iterator find_allocation(const void* address);

// False where a range begins in an allocation and ends outside of it.
bool stays_inside(const void* address, size_t bytes);

struct Work {
  cudaGraphNodeType type;
  std::function<void()> run;
  KernelLaunch launch{};       // of a kernel
  std::vector<TaskPtr> after{};  // besides what its stream orders
};

// Records, runs or queues it. `task` gets what was queued; null in a capture.
cudaError_t submit(cudaStream_t stream, Work work, TaskPtr* task = nullptr);

// Runs a task and all that must run before it; null is done.
void finish(const TaskPtr& task);
// Everything that a host waits for when it waits for the stream.
void finish_stream(cudaStream_t stream);
void finish_everything();

// Runs the nodes of a graph in an order that its edges allow, which the schedule chooses.
void run_program(const Program& program);

}  // namespace npu::emulator
