#include "cuda/cuda_event.h"

namespace npu {

Status CudaEvent::record(cudaStream_t stream, std::shared_ptr<Event>* event) {
  if (!*event) {
    cudaEvent_t made = nullptr;
    NPU_TRY(cuda_check(cudaEventCreateWithFlags(&made, cudaEventDisableTiming), "cudaEventCreateWithFlags"));
    *event = std::make_shared<CudaEvent>(EventOwner(made));
  }
  const cudaEvent_t handle = static_cast<CudaEvent&>(**event).event_.get();
  return cuda_check(cudaEventRecord(handle, stream), "cudaEventRecord");
}

Status CudaEvent::has_passed(bool* out) {
  const RelaxedCapture relaxed;
  const cudaError_t error = cudaEventQuery(event_.get());
  *out = error == cudaSuccess;
  Status status = cuda_check(error, "cudaEventQuery");
  return error == cudaErrorNotReady ? Status() : std::move(status);
}

Status CudaEvent::wait() {
  const RelaxedCapture relaxed;
  return cuda_check(cudaEventSynchronize(event_.get()), "cudaEventSynchronize");
}

Status CudaEvent::delay(void* stream) {
  auto* waiting = static_cast<cudaStream_t>(stream);
  return cuda_check(cudaStreamWaitEvent(waiting, event_.get(), 0), "cudaStreamWaitEvent");
}

}  // namespace npu
