// Streams.
#include "emulator/runtime.h"

namespace npu::emulator {
namespace {

cudaStream_t stream_of_this_thread() {
  auto& stream = runtime().per_thread[std::this_thread::get_id()];
  if (stream == nullptr) stream = std::make_unique<CUstream_st>();
  return stream.get();
}

// A capture of this stream is over: what it recorded so far goes.
cudaError_t destroy(cudaStream_t stream) {
  if (runtime().streams.erase(stream) == 0) return cudaErrorInvalidResourceHandle;
  if (const CapturePtr capture = stream->capture; capture != nullptr) end_capture(capture, false);
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

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return call("cudaStreamCreateWithFlags", [&] {
    *stream = new CUstream_st{flags, nullptr, nullptr, {}, {}};
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
