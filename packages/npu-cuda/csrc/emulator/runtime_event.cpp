// Events, and what graphs keep for their user. Events of streams that capture are not modelled: to record one
// is refused.
#include "emulator/runtime.h"

namespace npu::emulator {
namespace {

cudaError_t record(cudaEvent_t event, cudaStream_t stream) {
  if (stream == nullptr || !runtime().events.contains(event)) return cudaErrorInvalidResourceHandle;
  if (stream->capture != nullptr) return cudaErrorStreamCaptureUnsupported;
  return submit(stream, {cudaGraphNodeTypeEmpty, [] {}}, &event->last);
}

cudaError_t query(cudaEvent_t event) {
  if (!runtime().events.contains(event)) return cudaErrorInvalidResourceHandle;
  if (const cudaError_t error = check_unsafe_call(); error != cudaSuccess) return error;
  return event->last == nullptr || event->last->done ? cudaSuccess : cudaErrorNotReady;
}

// A stream that captures cannot wait for what was launched outside of the capture.
cudaError_t wait(cudaStream_t stream, cudaEvent_t event) {
  if (stream == nullptr || !runtime().events.contains(event)) return cudaErrorInvalidResourceHandle;
  if (stream->capture != nullptr) {
    stream->capture->invalidated = true;
    return cudaErrorStreamCaptureIsolation;
  }
  return submit(stream, {cudaGraphNodeTypeEmpty, [] {}, {}, {event->last}});
}

}  // namespace
}  // namespace npu::emulator

using namespace npu::emulator;

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned) {
  return call("cudaEventCreateWithFlags", [&] {
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

cudaError_t cudaEventQuery(cudaEvent_t event) {
  return call("cudaEventQuery", [&] { return query(event); });
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return call("cudaEventSynchronize", CallKind::Wait, [&] {
    if (!runtime().events.contains(event)) return cudaErrorInvalidResourceHandle;
    if (const cudaError_t error = check_unsafe_call(); error != cudaSuccess) return error;
    finish(event->last);
    return cudaSuccess;
  });
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  return call("cudaStreamWaitEvent", [&] { return wait(find_stream(stream), event); });
}

cudaError_t cudaUserObjectCreate(cudaUserObject_t* object, void* pointer, cudaHostFn_t destroy, unsigned, unsigned) {
  return call("cudaUserObjectCreate", [&] {
    *object = new CUuserObject_st{std::shared_ptr<void>(pointer, destroy)};
    return cudaSuccess;
  });
}

cudaError_t cudaUserObjectRelease(cudaUserObject_t object, unsigned) {
  return call("cudaUserObjectRelease", CallKind::Release, [&] {
    delete object;
    return cudaSuccess;
  });
}

cudaError_t cudaGraphRetainUserObject(cudaGraph_t graph, cudaUserObject_t object, unsigned, unsigned flags) {
  return call("cudaGraphRetainUserObject", [&] {
    if (!runtime().graphs.contains(graph) || flags != cudaGraphUserObjectMove) return cudaErrorInvalidValue;
    graph->kept.push_back(object->kept);
    delete object;
    return cudaSuccess;
  });
}
