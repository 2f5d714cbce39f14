// Rows of elements, read into the numbers of a class and written back.
#pragma once

#include "ops/pointwise/elements.h"
#include "ops/pointwise/op.h"

namespace npu::pointwise {

// n elements, `stride` apart, into contiguous numbers.
using ReadRow = void (*)(const void* elements, int64_t stride, void* numbers, int64_t n);
using WriteRow = void (*)(const void* numbers, void* elements, int64_t stride, int64_t n);

ReadRow reader(Element element, Class type);
WriteRow writer(Element element, Class type);

}  // namespace npu::pointwise
