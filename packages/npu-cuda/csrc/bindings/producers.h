// Producers of tensors: the exchange interface of a Python type, looked up once per type.
#pragma once

#include "bindings/arguments.h"
#include "bindings/dlpack.h"

namespace npu::bindings {

struct Producer {
  // Our own class; the C functions of __dlpack_c_exchange_api__; the method __dlpack__; not a tensor at all.
  enum class Way { Own, Exchange, Protocol, None };
  PyTypeObject* type = nullptr;  // kept alive, so that no other type takes its address
  Way way = Way::None;
  const DLPackExchangeAPI* api = nullptr;  // of Way::Exchange
  bool is_torch = false;
  bool is_dispatched = false;  // a torch.Tensor with __torch_dispatch__: what it shows is not its memory
};

// Asks torch.cuda for the current stream, for versions of PyTorch whose tensors have no table; it has no other entry.
const DLPackExchangeAPI* torch_streams();

// Needs the GIL. A copy, because the table has few places.
Producer producer_of(PyTypeObject* type);

// Whether a lazy conjugation or negation is pending on a torch tensor: its memory does not hold its values.
bool is_lazily_changed(nb::handle tensor, const char* question);

struct ExportedTensor {
  const DLTensor* tensor = nullptr;
  bool is_read_only = false;
  bool is_copy = false;
};

// What __dlpack__ returns. The memory will be used on the default stream; `is_in_order`: on one that needs not wait for
// what the producer has launched. Python errors are thrown as they are.
nb::object export_dlpack(nb::handle tensor, bool is_in_order);
Status open(const DLManagedTensorVersioned& managed, ExportedTensor* out);
Status open_capsule(nb::handle capsule, ExportedTensor* out);

// A capsule of this; it takes it over.
nb::object make_capsule(DLManagedTensorVersioned* managed);
nb::object make_capsule(DLManagedTensor* managed);

}  // namespace npu::bindings
