// The element types of device code: widen is exact, narrow rounds to nearest, ties to even, and keeps NaN.
// ops/floats.h has the same for the host.
#pragma once

#include "core/call.h"
#include "cuda/launch.h"
#include "ops/floats.h"

namespace npu {

template <>
inline constexpr DType kDTypeOf<__half> = kFloat16;
template <>
inline constexpr DType kDTypeOf<__nv_bfloat16> = kBFloat16;

template <class T>
__device__ inline float widen(T x) {
  if constexpr (std::is_same_v<T, __half>) return __half2float(x);
  else if constexpr (std::is_same_v<T, __nv_bfloat16>) return __bfloat162float(x);
  else return x;
}

template <class T>
__device__ inline T narrow(float x) {
  if constexpr (std::is_same_v<T, __half>) return __float2half_rn(x);
  else if constexpr (std::is_same_v<T, __nv_bfloat16>) return __float2bfloat16_rn(x);
  else return x;
}

}  // namespace npu
