// Numbers of every dtype on the host.
#pragma once

#include "ops/floats.h"

namespace npu::indexing {

template <class T>
float widen(T x) { return to_float(x); }
template <class T>
T narrow(float x) { return from_float<T>(x); }

}  // namespace npu::indexing

#include "ops/index/numbers.h"

namespace npu::indexing {

template <class F>
auto with_number(DType dtype, F f) { return with_number_of<Half, BFloat16>(dtype, f); }

}  // namespace npu::indexing
