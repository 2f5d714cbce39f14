// The Python module npu_cuda._C.
#include <nanobind/nanobind.h>

#include "bindings/installation.h"

NB_MODULE(_C, module) {
  module.doc() = "The native part of npu_cuda.";
  npu::bindings::bind_installation(module);
}
