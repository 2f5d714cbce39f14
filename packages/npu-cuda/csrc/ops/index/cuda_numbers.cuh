// Numbers of every dtype in device code.
#pragma once

#include "ops/device_floats.h"
#include "ops/pointwise/elements.h"

namespace npu::indexing {

// Calls f with a number of a dtype.
template <class F>
Status with_number(DType dtype, F f) {
  using pointwise::Element;
  switch (pointwise::element_of(dtype)) {
    case Element::Float32: return f(float{});
    case Element::Float16: return f(__half{});
    case Element::BFloat16: return f(__nv_bfloat16{});
    case Element::Float64: return f(double{});
    case Element::Int64: return f(int64_t{});
    case Element::Int32: return f(int32_t{});
    case Element::Int16: return f(int16_t{});
    case Element::Int8: return f(int8_t{});
    case Element::UInt8: return f(uint8_t{});
    default: return f(pointwise::Bool{});
  }
}

}  // namespace npu::indexing
