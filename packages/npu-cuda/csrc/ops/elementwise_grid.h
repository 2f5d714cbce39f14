// Distribution of the items of elementwise kernels, one or one access of 16 bytes per thread. It is right for any count;
// an empty tensor needs no launch.
#pragma once

#include <algorithm>

#include "cuda/launch.h"

namespace npu {

inline constexpr int kThreads = 256;
inline constexpr uint32_t kVectorBytes = 16;

inline dim3 blocks_for(int64_t work, int64_t work_of_a_block) {
  constexpr int64_t most = 0x7fffffff;
  return dim3(static_cast<unsigned>(std::clamp((work + work_of_a_block - 1) / work_of_a_block, int64_t{1}, most)));
}

// For kernels that step over the items with item_step().
inline LaunchShape item_shape(int64_t items) { return {blocks_for(items, kThreads), dim3(kThreads)}; }

__device__ inline int64_t first_item() { return int64_t{blockIdx.x} * blockDim.x + threadIdx.x; }
__device__ inline int64_t item_step() { return int64_t{gridDim.x} * blockDim.x; }

}  // namespace npu
