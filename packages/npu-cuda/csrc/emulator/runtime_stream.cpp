// Streams, events, and what they do to each other.
#include "emulator/runtime.h"

namespace npu::emulator {
namespace {

cudaStream_t stream_of_this_thread() {
  auto& stream = runtime().per_thread[std::this_thread::get_id()];
  if (stream == nullptr) {
    stream = std::make_unique<CUstream_st>();
    stream->id = runtime().next_id++;
  }
  return stream.get();
}

// A capture of this stream is over: what it recorded so far goes.
cudaError_t destroy(cudaStream_t stream) {
  if (runtime().streams.erase(stream) == 0) return cudaErrorInvalidResourceHandle;
  if (const CapturePtr capture = stream->capture; capture != nullptr) {
    capture->invalidated = true;
    capture->streams.erase(stream);
    if (capture->origin == stream) end_capture(capture, false);
  }
  delete stream;
  return cudaSuccess;
}

cudaError_t record(cudaEvent_t event, cudaStream_t stream) {
  if (stream == nullptr || !runtime().events.contains(event)) return cudaErrorInvalidResourceHandle;
  if (stream->capture != nullptr) {
    if (stream->capture->invalidated) return cudaErrorStreamCaptureInvalidated;
    event->task = nullptr;
    event->capture = stream->capture;
    event->nodes = stream->dependencies;
    return cudaSuccess;
  }
  TaskPtr task;
  const cudaError_t error = submit(stream, {cudaGraphNodeTypeEventRecord, [] {}}, &task);
  if (error != cudaSuccess) return error;
  event->task = task;
  event->capture = nullptr;
  return cudaSuccess;
}

void add_dependencies(cudaStream_t stream, const std::vector<cudaGraphNode_t>& nodes) {
  stream->dependencies.insert(stream->dependencies.end(), nodes.begin(), nodes.end());
}

cudaError_t wait_in_capture(cudaStream_t stream, cudaEvent_t event) {
  Capture& capture = *stream->capture;
  if (capture.invalidated) return cudaErrorStreamCaptureInvalidated;
  if (event->capture == stream->capture) {
    add_dependencies(stream, event->nodes);
    return cudaSuccess;
  }
  capture.invalidated = true;
  if (event->capture == nullptr || event->capture->ended) return cudaErrorStreamCaptureIsolation;
  event->capture->invalidated = true;
  return cudaErrorStreamCaptureMerge;
}

// A stream that waits for an event of a capture becomes part of it.
cudaError_t join_capture(cudaStream_t stream, cudaEvent_t event) {
  const CapturePtr capture = event->capture;
  if (capture->ended) return cudaErrorCapturedEvent;
  if (capture->invalidated) return cudaErrorStreamCaptureInvalidated;
  if (is_legacy(stream)) {
    capture->invalidated = true;
    return cudaErrorStreamCaptureImplicit;
  }
  stream->capture = capture;
  capture->streams.insert(stream);
  add_dependencies(stream, event->nodes);
  return cudaSuccess;
}

cudaError_t wait(cudaStream_t stream, cudaEvent_t event) {
  if (stream == nullptr || !runtime().events.contains(event)) return cudaErrorInvalidResourceHandle;
  if (event->task == nullptr && event->capture == nullptr) return cudaSuccess;
  if (stream->capture != nullptr) return wait_in_capture(stream, event);
  if (event->capture != nullptr) return join_capture(stream, event);
  return submit(stream, {cudaGraphNodeTypeWaitEvent, [] {}, {}, {event->task}});
}

}  // namespace

cudaStream_t find_stream(cudaStream_t handle) {
  if (handle == nullptr || handle == cudaStreamLegacy) return &runtime().legacy;
  if (handle == cudaStreamPerThread) return stream_of_this_thread();
  return runtime().streams.contains(handle) ? handle : nullptr;
}

}  // namespace npu::emulator

using namespace npu::emulator;

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return call("cudaStreamCreateWithFlags", [&] {
    *stream = new CUstream_st{runtime().next_id++, flags, nullptr, nullptr, {}, {}};
    runtime().streams.insert(*stream);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  return call("cudaStreamDestroy", CallKind::Release, [&] { return destroy(stream); });
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  return call("cudaStreamSynchronize", CallKind::Wait, [&] {
    cudaStream_t stream = find_stream(handle);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    const cudaError_t error = check_wait(stream);
    if (error == cudaSuccess) finish_stream(stream);
    return error;
  });
}

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return call("cudaEventCreate", [&] {
    *event = new CUevent_st;
    runtime().events.insert(*event);
    return cudaSuccess;
  });
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  return call("cudaEventDestroy", CallKind::Release, [&] {
    if (runtime().events.erase(event) == 0) return cudaErrorInvalidResourceHandle;
    delete event;
    return cudaSuccess;
  });
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return call("cudaEventRecord", [&] { return record(event, find_stream(stream)); });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  return call("cudaStreamWaitEvent", [&] { return wait(find_stream(stream), event); });
}
