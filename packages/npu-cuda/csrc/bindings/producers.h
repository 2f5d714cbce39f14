// Producers of tensors: the exchange interface of a Python type, looked up once per type.
#pragma once

#include "bindings/dlpack.h"
#include "bindings/errors.h"

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

// Asks torch.cuda for the current stream: for versions of PyTorch whose tensors have no table. Nothing else is in it.
const DLPackExchangeAPI* torch_streams();

// Whether a lazy conjugation or negation is pending on a torch tensor: its memory does not hold its values.
bool is_lazily_changed(nb::handle tensor, const char* question);

}  // namespace npu::bindings
