#include "emulator/runtime_capture.h"

#include <algorithm>

#include "emulator/runtime_call.h"

namespace npu::emulator {
namespace {

thread_local cudaStreamCaptureMode thread_mode = cudaStreamCaptureModeGlobal;

// As cudaThreadExchangeStreamCaptureMode documents it.
bool forbids_unsafe_calls(const Capture& capture) {
  if (capture.invalidated || thread_mode == cudaStreamCaptureModeRelaxed) return false;
  if (capture.thread == std::this_thread::get_id()) return capture.mode != cudaStreamCaptureModeRelaxed;
  return capture.mode == cudaStreamCaptureModeGlobal && thread_mode == cudaStreamCaptureModeGlobal;
}

template <class Predicate>
bool invalidate_where(Predicate affected) {
  bool found = false;
  for (const CapturePtr& capture : runtime().captures) {
    if (!affected(*capture)) continue;
    invalidate(*capture);
    found = true;
  }
  return found;
}

bool captures_blocking_stream(const Capture& capture) {
  return !capture.invalidated && std::any_of(capture.streams.begin(), capture.streams.end(), is_blocking);
}

}  // namespace

cudaStreamCaptureStatus capture_status(cudaStream_t stream) {
  if (stream->capture == nullptr) return cudaStreamCaptureStatusNone;
  return stream->capture->invalidated ? cudaStreamCaptureStatusInvalidated : cudaStreamCaptureStatusActive;
}

void invalidate(Capture& capture) { capture.invalidated = true; }

cudaError_t check_unsafe_call() {
  return invalidate_where(forbids_unsafe_calls) ? cudaErrorStreamCaptureUnsupported : cudaSuccess;
}

cudaError_t check_legacy_use(cudaStream_t stream) {
  if (!is_legacy(stream)) return cudaSuccess;
  return invalidate_where(captures_blocking_stream) ? cudaErrorStreamCaptureImplicit : cudaSuccess;
}

bool blocking_capture_exists() {
  const auto affected = [](const CapturePtr& capture) { return captures_blocking_stream(*capture); };
  return std::any_of(runtime().captures.begin(), runtime().captures.end(), affected);
}

cudaError_t check_wait(cudaStream_t stream) {
  if (stream->capture == nullptr) return check_legacy_use(stream);
  const bool was_invalid = stream->capture->invalidated;
  invalidate(*stream->capture);
  return was_invalid ? cudaErrorStreamCaptureInvalidated : cudaErrorStreamCaptureUnsupported;
}

cudaError_t check_device_wait() {
  const auto active = [](const Capture& capture) { return !capture.invalidated; };
  return invalidate_where(active) ? cudaErrorStreamCaptureUnsupported : cudaSuccess;
}

void end_capture(const CapturePtr& capture, bool keep_graph) {
  for (cudaStream_t stream : capture->streams) {
    stream->capture = nullptr;
    stream->dependencies.clear();
    stream->edges.clear();
  }
  capture->ended = true;
  std::erase(runtime().captures, capture);
  if (keep_graph || !capture->owns_graph) return;
  discard_graph(capture->graph);
  capture->graph = nullptr;
}

void discard_graph(cudaGraph_t graph) {
  const std::lock_guard lock(runtime().mutex);
  runtime().graphs.erase(graph);
  delete graph;
}

}  // namespace npu::emulator

cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  return npu::emulator::call("cudaThreadExchangeStreamCaptureMode", [&] {
    std::swap(*mode, npu::emulator::thread_mode);
    return cudaSuccess;
  });
}
