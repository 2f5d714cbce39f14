// The rules of stream capture for other calls.
#pragma once

#include "emulator/runtime_state.h"

namespace npu::emulator {

// cudaStreamCaptureStatusNone, Active or Invalidated.
cudaStreamCaptureStatus capture_status(cudaStream_t stream);

void invalidate(Capture& capture);

// For calls that are unsafe in a capture (cudaMalloc, cudaFree, cudaEventQuery, ...): an error where the mode of a
// capture, here or on another thread, forbids them. The captures that forbade it are invalid from then on.
cudaError_t check_unsafe_call();

// An error where the stream is the legacy stream and a blocking stream is being captured, which it invalidates.
cudaError_t check_legacy_use(cudaStream_t stream);

bool blocking_capture_exists();

// For waiting for a stream, or asking whether it is done: never while it is captured.
cudaError_t check_wait(cudaStream_t stream);

// For waiting for the whole device: never while any capture goes on, whatever its mode.
cudaError_t check_device_wait();

// Takes a capture from all its streams. The graph goes, if the capture made it, unless it is kept.
void end_capture(const CapturePtr& capture, bool keep_graph);

void discard_graph(cudaGraph_t graph);

}  // namespace npu::emulator
