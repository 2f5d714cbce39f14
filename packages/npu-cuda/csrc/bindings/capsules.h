// DLPack capsules: asking for one, and what is in it. The capsule keeps the memory, and gives it back when it dies.
#pragma once

#include "bindings/dlpack.h"
#include "bindings/errors.h"

namespace npu::bindings {

struct ExportedTensor {
  const DLTensor* tensor = nullptr;
  bool is_read_only = false;
  bool is_copy = false;
};

// What __dlpack__ returns. `stream` is that on which the memory will be used; null is the default one. Python errors
// are thrown as they are.
nb::object export_dlpack(nb::handle tensor, void* stream);
Status open_capsule(nb::handle capsule, ExportedTensor* out);

// A capsule of this; it takes it over.
nb::object make_capsule(DLManagedTensorVersioned* managed);
nb::object make_capsule(DLManagedTensor* managed);

}  // namespace npu::bindings
