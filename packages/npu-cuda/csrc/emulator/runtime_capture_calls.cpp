// The functions that begin, end and describe captures.
#include <algorithm>

#include "emulator/runtime_call.h"
#include "emulator/runtime_capture.h"

namespace npu::emulator {
namespace {

// Everything in the capture leads to what its origin now stands at, or did so when its stream joined in.
bool joined(const Capture& capture) {
  std::set<cudaGraphNode_t> reached;
  std::vector<cudaGraphNode_t> stack = capture.origin->dependencies;
  while (!stack.empty()) {
    cudaGraphNode_t node = stack.back();
    stack.pop_back();
    if (!reached.insert(node).second) continue;
    stack.insert(stack.end(), node->after.begin(), node->after.end());
  }
  const auto inside = [&](cudaGraphNode_t node) { return reached.contains(node); };
  return std::all_of(capture.streams.begin(), capture.streams.end(), [&](cudaStream_t stream) {
    return std::all_of(stream->dependencies.begin(), stream->dependencies.end(), inside);
  });
}

cudaError_t begin_capture(cudaStream_t handle, cudaGraph_t graph, const cudaGraphNode_t* nodes, size_t count,
                          cudaStreamCaptureMode mode) {
  cudaStream_t stream = find_stream(handle);
  if (stream == nullptr) return cudaErrorInvalidResourceHandle;
  if (is_legacy(stream)) return cudaErrorStreamCaptureUnsupported;
  if (stream->capture != nullptr) return cudaErrorIllegalState;
  const bool owns_graph = graph == nullptr;
  if (owns_graph) {
    graph = new CUgraph_st;
    runtime().graphs.insert(graph);
  }
  stream->capture = std::make_shared<Capture>(
      Capture{runtime().next_id++, mode, std::this_thread::get_id(), stream, graph, owns_graph});
  stream->capture->streams.insert(stream);
  stream->dependencies.assign(nodes, nodes + count);
  stream->edges.assign(count, cudaGraphEdgeData{});
  runtime().captures.push_back(stream->capture);
  return cudaSuccess;
}

cudaError_t end(cudaStream_t handle, cudaGraph_t* graph, bool* owned) {
  *graph = nullptr;
  cudaStream_t stream = find_stream(handle);
  if (stream == nullptr) return cudaErrorInvalidResourceHandle;
  const CapturePtr capture = stream->capture;
  if (capture == nullptr) return cudaErrorIllegalState;
  if (capture->origin != stream) return cudaErrorStreamCaptureUnmatched;
  if (capture->mode != cudaStreamCaptureModeRelaxed && capture->thread != std::this_thread::get_id()) {
    return cudaErrorStreamCaptureWrongThread;
  }
  const cudaError_t error = capture->invalidated ? cudaErrorStreamCaptureInvalidated
                            : joined(*capture)   ? cudaSuccess
                                                 : cudaErrorStreamCaptureUnjoined;
  end_capture(capture, error == cudaSuccess);
  if (error == cudaSuccess) *graph = capture->graph;
  *owned = capture->owns_graph;
  return error;
}

// Also gives the stream, if asked. The legacy stream has no capture of its own; asking it is an error where a
// blocking stream is being captured, which stays valid.
cudaError_t describe_capture(cudaStream_t handle, cudaStreamCaptureStatus* status, cudaStream_t* found) {
  cudaStream_t stream = find_stream(handle);
  if (stream == nullptr) return cudaErrorInvalidResourceHandle;
  if (is_legacy(stream) && blocking_capture_exists()) return cudaErrorStreamCaptureImplicit;
  *status = capture_status(stream);
  if (found != nullptr) *found = stream;
  return cudaSuccess;
}

}  // namespace
}  // namespace npu::emulator

using namespace npu::emulator;

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  return call("cudaStreamBeginCapture", [&] { return begin_capture(stream, nullptr, nullptr, 0, mode); });
}

cudaError_t cudaStreamBeginCaptureToGraph(cudaStream_t stream, cudaGraph_t graph,
                                          const cudaGraphNode_t* dependencies, const cudaGraphEdgeData*,
                                          size_t count, cudaStreamCaptureMode mode) {
  return call("cudaStreamBeginCaptureToGraph", [&] {
    if (!runtime().graphs.contains(graph)) return cudaErrorInvalidValue;
    return begin_capture(stream, graph, dependencies, count, mode);
  });
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  bool owned = false;
  const cudaError_t error =
      call("cudaStreamEndCapture", CallKind::Release, [&] { return end(stream, graph, &owned); });
  if (error == cudaSuccess) return error;
  if (owned && *graph != nullptr) discard_graph(*graph);  // it ended well, and was made to fail
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
    if (dependencies != nullptr) *dependencies = stream->dependencies.data();
    if (edges != nullptr) *edges = stream->edges.data();
    if (count != nullptr) *count = stream->dependencies.size();
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
    stream->edges.assign(stream->dependencies.size(), cudaGraphEdgeData{});
    return cudaSuccess;
  });
}
