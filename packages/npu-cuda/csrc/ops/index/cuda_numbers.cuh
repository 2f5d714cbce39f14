// Numbers of every dtype in device code.
#pragma once

#include "ops/device_floats.h"
#include "ops/index/numbers.h"

namespace npu::indexing {

template <class F>
Status with_device_number(DType dtype, F f) { return with_number_of<__half, __nv_bfloat16>(dtype, f); }

}  // namespace npu::indexing
