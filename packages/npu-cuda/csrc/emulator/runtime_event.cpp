// Events, and what they do between streams.
#include <chrono>

#include "emulator/runtime_call.h"
#include "emulator/runtime_capture.h"
#include "emulator/runtime_work.h"

namespace npu::emulator {
namespace {

double milliseconds_now() {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

cudaError_t create(cudaEvent_t* event, unsigned flags) {
  *event = new CUevent_st{flags, nullptr, nullptr, {}, nullptr};
  runtime().events.insert(*event);
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
  const auto time = std::make_shared<double>(0);
  TaskPtr task;
  Work work{cudaGraphNodeTypeEventRecord, [time] { *time = milliseconds_now(); }};
  const cudaError_t error = submit(stream, std::move(work), &task);
  if (error != cudaSuccess) return error;
  event->task = task;
  event->capture = nullptr;
  event->milliseconds = time;
  return cudaSuccess;
}

void add_dependencies(cudaStream_t stream, const std::vector<cudaGraphNode_t>& nodes) {
  stream->dependencies.insert(stream->dependencies.end(), nodes.begin(), nodes.end());
  stream->edges.assign(stream->dependencies.size(), cudaGraphEdgeData{});
}

cudaError_t wait_in_capture(cudaStream_t stream, cudaEvent_t event) {
  Capture& capture = *stream->capture;
  if (capture.invalidated) return cudaErrorStreamCaptureInvalidated;
  if (event->capture == stream->capture) {
    add_dependencies(stream, event->nodes);
    return cudaSuccess;
  }
  invalidate(capture);
  if (event->capture == nullptr || event->capture->ended) return cudaErrorStreamCaptureIsolation;
  invalidate(*event->capture);
  return cudaErrorStreamCaptureMerge;
}

// A stream that waits for an event of a capture becomes part of it.
cudaError_t join_capture(cudaStream_t stream, cudaEvent_t event) {
  const CapturePtr capture = event->capture;
  if (capture->ended) return cudaErrorCapturedEvent;
  if (capture->invalidated) return cudaErrorStreamCaptureInvalidated;
  if (is_legacy(stream)) {
    invalidate(*capture);
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

// For asking or waiting on the host.
cudaError_t check_event(cudaEvent_t event) {
  if (!runtime().events.contains(event)) return cudaErrorInvalidResourceHandle;
  if (event->capture == nullptr) return cudaSuccess;
  if (!event->capture->ended) invalidate(*event->capture);
  return cudaErrorCapturedEvent;
}

}  // namespace
}  // namespace npu::emulator

using namespace npu::emulator;

cudaError_t cudaEventCreate(cudaEvent_t* event) {
  return call("cudaEventCreate", [&] { return create(event, cudaEventDefault); });
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  return call("cudaEventCreateWithFlags", [&] { return create(event, flags); });
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

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return call("cudaEventSynchronize", CallKind::Wait, [&] {
    const cudaError_t error = check_event(event);
    if (error == cudaSuccess) finish(event->task);
    return error;
  });
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
  return call("cudaEventQuery", CallKind::Wait, [&] {
    if (const cudaError_t error = check_event(event); error != cudaSuccess) return error;
    if (const cudaError_t error = check_unsafe_call(); error != cudaSuccess) return error;
    if (event->task == nullptr || event->task->done) return cudaSuccess;
    finish(event->task);
    return cudaErrorNotReady;
  });
}

cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start, cudaEvent_t end) {
  return call("cudaEventElapsedTime", [&] {
    for (cudaEvent_t event : {start, end}) {
      if (!runtime().events.contains(event) || event->task == nullptr) return cudaErrorInvalidResourceHandle;
      if ((event->flags & cudaEventDisableTiming) != 0) return cudaErrorInvalidResourceHandle;
      if (!event->task->done) return cudaErrorNotReady;
    }
    *milliseconds = static_cast<float>(*end->milliseconds - *start->milliseconds);
    return cudaSuccess;
  });
}
