// Work on streams: recorded into a graph where the stream is being captured; else run at once, or queued where the
// emulator defers work.
#pragma once

#include "emulator/runtime_state.h"

namespace npu::emulator {

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
bool stream_is_idle(cudaStream_t stream);

// Runs a kernel; what it does wrong becomes the error of the device.
void run_on_device(const KernelLaunch& launch);

// Runs the nodes of a graph in an order that its edges allow, which the schedule chooses.
void run_program(const Program& program);

}  // namespace npu::emulator
