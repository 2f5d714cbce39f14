// CudaExecutable: an instantiated CUDA graph. Its source graph is not kept.
#pragma once

#include <mutex>

#include "core/device.h"
#include "cuda/cuda_handles.h"

namespace npu {

class CudaDevice;

class CudaExecutable final : public Executable {
 public:
  // Instantiates a graph, and uploads it through a stream of the device.
  static Status make(CudaDevice* device, cudaGraph_t graph, cudaStream_t stream, std::unique_ptr<Executable>* out);
  CudaExecutable(CudaDevice* device, GraphExecOwner exec) : device_(device), exec_(std::move(exec)) {}

  Status launch(void* stream, int64_t count) override;
  // Takes the parameters of another graph. `is_done` is false, and nothing has changed, where its shape does not
  // allow it. Launches that were made before are not affected.
  Status update(cudaGraph_t graph, bool* is_done);

 private:
  CudaDevice* device_;
  std::mutex guard_;  // CUDA does not allow two threads to use one executable graph at once
  GraphExecOwner exec_;
};

}  // namespace npu
