// Captures: their rules, and the functions that begin, end and describe them.
#include <algorithm>

#include "emulator/runtime.h"

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
    capture->invalidated = true;
    found = true;
  }
  return found;
}

bool captures_blocking_stream(const Capture& capture) {
  return !capture.invalidated && is_blocking(capture.stream);
}

cudaError_t begin_capture(cudaStream_t handle, cudaStreamCaptureMode mode) {
  cudaStream_t stream = find_stream(handle);
  if (stream == nullptr) return cudaErrorInvalidResourceHandle;
  if (is_legacy(stream)) return cudaErrorStreamCaptureUnsupported;
  if (stream->capture != nullptr) return cudaErrorIllegalState;
  cudaGraph_t graph = new CUgraph_st;
  runtime().graphs.insert(graph);
  static unsigned long long captures = 0;
  const Capture capture{mode, std::this_thread::get_id(), stream, graph, ++captures};
  stream->capture = std::make_shared<Capture>(capture);
  runtime().captures.push_back(stream->capture);
  return cudaSuccess;
}

// Stricter than CUDA, which lets a node dangle that was dropped from the dependencies of its own stream:
// which stream a node is of is not known here.
bool is_joined(const CUstream_st& stream) {
  std::set<cudaGraphNode_t> followed(stream.dependencies.begin(), stream.dependencies.end());
  const auto& nodes = stream.capture->graph->nodes;
  for (const auto& node : nodes) followed.insert(node->after.begin(), node->after.end());
  return std::all_of(nodes.begin(), nodes.end(), [&](const auto& node) { return followed.contains(node.get()); });
}

cudaError_t end(cudaStream_t handle, cudaGraph_t* graph) {
  *graph = nullptr;
  cudaStream_t stream = find_stream(handle);
  if (stream == nullptr) return cudaErrorInvalidResourceHandle;
  const CapturePtr capture = stream->capture;
  if (capture == nullptr) return cudaErrorIllegalState;
  if (capture->mode != cudaStreamCaptureModeRelaxed && capture->thread != std::this_thread::get_id()) {
    return cudaErrorStreamCaptureWrongThread;
  }
  if (!capture->invalidated && !is_joined(*stream)) {
    return end_capture(capture, false), cudaErrorStreamCaptureUnjoined;
  }
  end_capture(capture, !capture->invalidated);
  *graph = capture->graph;
  return capture->invalidated ? cudaErrorStreamCaptureInvalidated : cudaSuccess;
}

// Also gives the stream, if asked. The legacy stream has no capture of its own; asking it is an error where a
// blocking stream is being captured, which stays valid.
cudaError_t describe_capture(cudaStream_t handle, cudaStreamCaptureStatus* status, cudaStream_t* found) {
  cudaStream_t stream = find_stream(handle);
  if (stream == nullptr) return cudaErrorInvalidResourceHandle;
  const auto is_blocked = [](const CapturePtr& capture) { return captures_blocking_stream(*capture); };
  const auto& captures = runtime().captures;
  if (is_legacy(stream) && std::any_of(captures.begin(), captures.end(), is_blocked)) {
    return cudaErrorStreamCaptureImplicit;
  }
  *status = stream->capture == nullptr         ? cudaStreamCaptureStatusNone
            : stream->capture->invalidated ? cudaStreamCaptureStatusInvalidated
                                           : cudaStreamCaptureStatusActive;
  if (found != nullptr) *found = stream;
  return cudaSuccess;
}

}  // namespace

cudaError_t check_unsafe_call() {
  return invalidate_where(forbids_unsafe_calls) ? cudaErrorStreamCaptureUnsupported : cudaSuccess;
}

cudaError_t check_legacy_use(cudaStream_t stream) {
  if (!is_legacy(stream)) return cudaSuccess;
  return invalidate_where(captures_blocking_stream) ? cudaErrorStreamCaptureImplicit : cudaSuccess;
}

cudaError_t check_wait(cudaStream_t stream) {
  if (stream->capture == nullptr) return check_legacy_use(stream);
  const bool was_invalid = stream->capture->invalidated;
  stream->capture->invalidated = true;
  return was_invalid ? cudaErrorStreamCaptureInvalidated : cudaErrorStreamCaptureUnsupported;
}

cudaError_t check_device_wait() {
  const auto active = [](const Capture& capture) { return !capture.invalidated; };
  return invalidate_where(active) ? cudaErrorStreamCaptureUnsupported : cudaSuccess;
}

void end_capture(const CapturePtr& capture, bool keep_graph) {
  capture->stream->capture = nullptr;
  capture->stream->dependencies.clear();
  std::erase(runtime().captures, capture);
  if (keep_graph) return;
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

using namespace npu::emulator;

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  return call("cudaStreamBeginCapture", [&] { return begin_capture(stream, mode); });
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  const cudaError_t error = call("cudaStreamEndCapture", CallKind::Release, [&] { return end(stream, graph); });
  if (error == cudaSuccess) return error;
  if (*graph != nullptr) discard_graph(*graph);  // it ended well, and was made to fail
  *graph = nullptr;
  return error;
}

cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus* status) {
  return call("cudaStreamIsCapturing", [&] { return describe_capture(handle, status, nullptr); });
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t handle, cudaStreamCaptureStatus* status, unsigned long long* id,
                                     cudaGraph_t* graph, const cudaGraphNode_t** dependencies,
                                     const cudaGraphEdgeData** edges, size_t* count) {
  return call("cudaStreamGetCaptureInfo", [&] {
    cudaStream_t stream = nullptr;
    const cudaError_t error = describe_capture(handle, status, &stream);
    if (error != cudaSuccess || *status != cudaStreamCaptureStatusActive) return error;
    if (id != nullptr) *id = stream->capture->id;
    if (graph != nullptr) *graph = stream->capture->graph;
    if (dependencies == nullptr) return cudaSuccess;
    stream->edges.resize(stream->dependencies.size());
    *dependencies = stream->dependencies.data();
    *edges = stream->edges.data();
    *count = stream->dependencies.size();
    return cudaSuccess;
  });
}

cudaError_t cudaStreamUpdateCaptureDependencies(cudaStream_t handle, cudaGraphNode_t* dependencies,
                                                const cudaGraphEdgeData*, size_t count, unsigned flags) {
  return call("cudaStreamUpdateCaptureDependencies", [&] {
    cudaStream_t stream = find_stream(handle);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    if (stream->capture == nullptr) return cudaErrorIllegalState;
    if (stream->capture->invalidated) return cudaErrorStreamCaptureInvalidated;
    if (flags == cudaStreamSetCaptureDependencies) stream->dependencies.clear();
    stream->dependencies.insert(stream->dependencies.end(), dependencies, dependencies + count);
    return cudaSuccess;
  });
}
