// TensorSpec: the description of a tensor without memory.
#pragma once

#include "bindings/arguments.h"
#include "core/device.h"

namespace npu::bindings {

struct TensorSpec {
  TensorDesc desc;  // no data; on the host until somebody says otherwise
};

// "float32", "bfloat16", ...: as core's name_of gives them. InvalidArgument lists what there is.
DType dtype_argument(nb::handle name, const char* function);

// dtype, shape and strides (None: contiguous) as a description without memory.
TensorDesc desc_argument(nb::handle dtype, nb::handle shape, nb::handle strides, const char* function);

// The spec as a tensor of this device.
TensorDesc on_device(const TensorSpec& spec, DeviceType type, int id);

// A tuple of ints.
nb::tuple tuple_of(const int64_t* numbers, int count);

}  // namespace npu::bindings
