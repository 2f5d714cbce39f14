// Return codes of the CUDA runtime as Status.
#pragma once

#include <cuda_runtime_api.h>

#include "core/status.h"

namespace npu {

// Ok for cudaSuccess; else DeviceError that says what failed and why:
// "cudaMalloc: cudaErrorMemoryAllocation (2): out of memory". Where kernels are emulated, what a kernel did wrong
// follows, with its block, thread and line.
Status cuda_status(cudaError_t error, const char* what);

}  // namespace npu
