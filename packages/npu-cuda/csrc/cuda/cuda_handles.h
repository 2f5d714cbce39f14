// Owners of handles of the CUDA runtime, and scoped states of the calling thread. Destructors
// never throw, never disturb any capture, and leave no error behind.
#pragma once

#include <memory>
#include <type_traits>

#include "cuda/cuda_status.h"

namespace npu {

// cuda_status, where the error is also taken from the state of the runtime: the next caller shall not find it. An
// offence against the rules of capture is InvalidArgument, as it is on the host.
inline Status cuda_check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return {};
  (void)cudaGetLastError();
  Status status = cuda_status(error, what);
  const bool is_offence = error >= cudaErrorStreamCaptureUnsupported && error <= cudaErrorStreamCaptureWrongThread;
  return is_offence ? Status::invalid(status.message()) : std::move(status);
}

// Until the end of a block, calls of this thread outside of a capture (freeing, instantiating) do not break
// one: CUDA would invalidate those in mode Global, of any thread, and those of this thread.
class RelaxedCapture {
 public:
  RelaxedCapture() { is_set_ = exchange(); }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;
  ~RelaxedCapture() {
    if (is_set_) exchange();
  }

 private:
  bool exchange() noexcept {
    if (cudaThreadExchangeStreamCaptureMode(&mode_) == cudaSuccess) return true;
    (void)cudaGetLastError();
    return false;
  }

  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
  bool is_set_ = false;
};

template <class Handle, cudaError_t (*destroy)(Handle)>
struct DestroyHandle {
  void operator()(Handle handle) const noexcept {
    const RelaxedCapture relaxed;
    if (destroy(handle) != cudaSuccess) (void)cudaGetLastError();
  }
};

template <class Handle, cudaError_t (*destroy)(Handle)>
using Owner = std::unique_ptr<std::remove_pointer_t<Handle>, DestroyHandle<Handle, destroy>>;

using StreamOwner = Owner<cudaStream_t, cudaStreamDestroy>;
using EventOwner = Owner<cudaEvent_t, cudaEventDestroy>;
using GraphOwner = Owner<cudaGraph_t, cudaGraphDestroy>;
using GraphExecOwner = Owner<cudaGraphExec_t, cudaGraphExecDestroy>;

}  // namespace npu
