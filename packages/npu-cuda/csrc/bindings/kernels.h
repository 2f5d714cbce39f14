// Kernels that are Python callables: calls go from C++ to Python and return a Status.
#pragma once

#include "bindings/errors.h"
#include "core/op_info.h"

namespace npu::bindings {

// A kernel that calls Python. `launch` and the others are wrapped by npu_cuda.extension.python_kernels, which says what they get.
// `supported` and `workspace_bytes` may be None.
struct PythonFunctions {
  nb::object launch;
  nb::object supported;
  nb::object workspace_bytes;
};
KernelPtr make_python_kernel(KernelTraits traits, PythonFunctions functions);

// The attributes of a call by name, in the types of their schema.
nb::dict decode_attrs(const OpInfo& op, const AttrBlob& attrs);

}  // namespace npu::bindings
