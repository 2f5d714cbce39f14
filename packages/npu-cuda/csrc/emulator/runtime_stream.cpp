// Streams.
#include "emulator/runtime_call.h"
#include "emulator/runtime_capture.h"
#include "emulator/runtime_work.h"

namespace npu::emulator {
namespace {

cudaError_t create(cudaStream_t* stream, unsigned flags, int priority) {
  *stream = new CUstream_st{runtime().next_id++, flags, priority, nullptr, nullptr, {}, {}};
  runtime().streams.insert(*stream);
  return cudaSuccess;
}

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
    invalidate(*capture);
    capture->streams.erase(stream);
    if (capture->origin == stream) end_capture(capture, false);
  }
  delete stream;
  return cudaSuccess;
}

}  // namespace

cudaStream_t find_stream(cudaStream_t handle) {
  if (handle == nullptr || handle == cudaStreamLegacy) return &runtime().legacy;
  if (handle == cudaStreamPerThread) return stream_of_this_thread();
  return runtime().streams.contains(handle) ? handle : nullptr;
}

}  // namespace npu::emulator

using namespace npu::emulator;

cudaError_t cudaStreamCreate(cudaStream_t* stream) {
  return call("cudaStreamCreate", [&] { return create(stream, cudaStreamDefault, 0); });
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return call("cudaStreamCreateWithFlags", [&] { return create(stream, flags, 0); });
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority) {
  return call("cudaStreamCreateWithPriority", [&] { return create(stream, flags, priority); });
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

// Work that was deferred is found running, once, and done the next time.
cudaError_t cudaStreamQuery(cudaStream_t handle) {
  return call("cudaStreamQuery", CallKind::Wait, [&] {
    cudaStream_t stream = find_stream(handle);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    if (const cudaError_t error = check_wait(stream); error != cudaSuccess) return error;
    if (stream_is_idle(stream)) return cudaSuccess;
    finish_stream(stream);
    return cudaErrorNotReady;
  });
}

cudaError_t cudaStreamGetFlags(cudaStream_t handle, unsigned* flags) {
  return call("cudaStreamGetFlags", [&] {
    cudaStream_t stream = find_stream(handle);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    *flags = stream->flags;
    return cudaSuccess;
  });
}

cudaError_t cudaStreamGetPriority(cudaStream_t handle, int* priority) {
  return call("cudaStreamGetPriority", [&] {
    cudaStream_t stream = find_stream(handle);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    *priority = stream->priority;
    return cudaSuccess;
  });
}

cudaError_t cudaLaunchHostFunc(cudaStream_t handle, cudaHostFn_t function, void* argument) {
  return call("cudaLaunchHostFunc", [&] {
    cudaStream_t stream = find_stream(handle);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    return submit(stream, {cudaGraphNodeTypeHost, [=] { function(argument); }});
  });
}
