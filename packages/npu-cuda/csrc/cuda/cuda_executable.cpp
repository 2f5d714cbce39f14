#include "cuda/cuda_executable.h"

#include "core/device.h"
#include "cuda/cuda_device.h"

namespace npu {
namespace {

// Kernels of others may allocate in stream order: AutoFreeOnLaunch keeps such a graph launchable a second time,
// and costs nothing where there is no allocation. UseNodePriority, which PyTorch adds, is left out: a graph is
// captured on a stream of its own, whose priority says nothing, and shall run with the priority of the stream it
// is launched on.
constexpr unsigned long long kInstantiateFlags = cudaGraphInstantiateFlagAutoFreeOnLaunch;

}  // namespace

Status CudaExecutable::make(CudaDevice* device, cudaGraph_t graph, cudaStream_t stream,
                            std::unique_ptr<Executable>* out) {
  ActiveDevice active;
  NPU_TRY(active.set(device));
  const RelaxedCapture relaxed;
  cudaGraphExec_t exec = nullptr;
  NPU_TRY(cuda_check(cudaGraphInstantiate(&exec, graph, kInstantiateFlags), "cudaGraphInstantiate"));
  GraphExecOwner owner(exec);
  NPU_TRY(cuda_check(cudaGraphUpload(exec, stream), "cudaGraphUpload"));
  *out = std::make_unique<CudaExecutable>(device, std::move(owner));
  return {};
}

Status CudaExecutable::launch(void* stream, int64_t count) {
  ActiveDevice active;
  NPU_TRY(active.set(device_));
  NPU_TRY(device_->refuse_capture(stream, "launching a graph"));
  const std::lock_guard lock(guard_);
  for (int64_t i = 0; i < count; ++i) {
    NPU_TRY(cuda_check(cudaGraphLaunch(exec_.get(), static_cast<cudaStream_t>(stream)), "cudaGraphLaunch"));
  }
  return {};
}

Status CudaExecutable::update(cudaGraph_t graph, bool* is_done) {
  ActiveDevice active;
  NPU_TRY(active.set(device_));
  const RelaxedCapture relaxed;
  const std::lock_guard lock(guard_);
  cudaGraphExecUpdateResultInfo info{};
  const cudaError_t error = cudaGraphExecUpdate(exec_.get(), graph, &info);
  *is_done = error == cudaSuccess;
  Status status = cuda_check(error, "cudaGraphExecUpdate");
  return error == cudaErrorGraphExecUpdateFailure ? Status() : std::move(status);
}

}  // namespace npu
