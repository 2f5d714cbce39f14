// Where AxisMap reads, on every device.
#pragma once

#include "ops/index/layouts.h"

#ifdef __CUDACC__
#define NPU_BOTH __host__ __device__
#else
#define NPU_BOTH
#endif

namespace npu::indexing {

// The coordinate that is read, of an axis of `size`; -1 for none.
NPU_BOTH inline int64_t source_of(Outside mode, int64_t at, int64_t size) {
  if (at >= 0 && at < size) return at;
  switch (mode) {
    case Outside::Wrap: return at % size < 0 ? at % size + size : at % size;
    case Outside::Reflect: return at < 0 ? -at : 2 * (size - 1) - at;
    case Outside::Clamp: return at < 0 ? 0 : size - 1;
    default: return -1;
  }
}

}  // namespace npu::indexing
