// DLPack capsules: requesting and reading them. A capsule owns its memory, and releases it when it is destroyed.
#pragma once

#include "bindings/dlpack.h"
#include "bindings/errors.h"

namespace npu::bindings {

struct ExportedTensor {
  const DLTensor* tensor = nullptr;
  bool is_read_only = false;
  bool is_copy = false;
};

// What __dlpack__ returns. The memory will be used on the default stream; `is_in_order`: on one that needs not wait for
// what the producer has launched. Python errors are thrown as they are.
nb::object export_dlpack(nb::handle tensor, bool is_in_order);
Status open_capsule(nb::handle capsule, ExportedTensor* out);

// A capsule of this; it takes it over.
nb::object make_capsule(DLManagedTensorVersioned* managed);
nb::object make_capsule(DLManagedTensor* managed);

}  // namespace npu::bindings
