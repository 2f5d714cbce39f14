// How the elements of tensors are stored: the dtypes that pointwise ops read and write, and the class of
// each.
#pragma once

#include "core/call.h"

namespace npu::pointwise {

enum class Element : uint8_t { Float32, Float16, BFloat16, Float64, Int64, Int32, Int16, Int8, UInt8, Bool, None };

inline Element element_of(DType dtype) {
  if (dtype.lanes != 1) return Element::None;
  switch (dtype.code << 8 | dtype.bits) {
    case 2 << 8 | 32: return Element::Float32;
    case 2 << 8 | 16: return Element::Float16;
    case 4 << 8 | 16: return Element::BFloat16;
    case 2 << 8 | 64: return Element::Float64;
    case 0 << 8 | 64: return Element::Int64;
    case 0 << 8 | 32: return Element::Int32;
    case 0 << 8 | 16: return Element::Int16;
    case 0 << 8 | 8: return Element::Int8;
    case 1 << 8 | 8: return Element::UInt8;
    case 6 << 8 | 8: return Element::Bool;
    default: return Element::None;
  }
}

struct Bool {
  uint8_t byte;
};

}  // namespace npu::pointwise
