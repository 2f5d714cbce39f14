#include "bindings/producers.h"

#include <utility>

#include "bindings/tensor_class.h"

namespace npu::bindings {
namespace {

nb::object attribute(PyTypeObject* type, const char* name) {
  nb::object found = nb::steal(PyObject_GetAttrString(reinterpret_cast<PyObject*>(type), name));
  if (!found.is_valid()) PyErr_Clear();
  return found;
}

// The first table of our major version in the chain; null if there is none.
const DLPackExchangeAPI* usable(const void* table) {
  auto* header = static_cast<const DLPackExchangeAPIHeader*>(table);
  while (header && header->version.major != kDLPackMajor) header = header->prev_api;
  return reinterpret_cast<const DLPackExchangeAPI*>(header);
}

const DLPackExchangeAPI* exchange_api(PyTypeObject* type) {
  if (const nb::object capsule = attribute(type, "__dlpack_c_exchange_api__"); capsule.is_valid()) {
    const void* table = PyCapsule_GetPointer(capsule.ptr(), "dlpack_exchange_api");
    if (!table) PyErr_Clear();
    return usable(table);
  }
  // What the package torch-c-dlpack-ext adds to older versions of PyTorch: the address as an int.
  const nb::object address = attribute(type, "__c_dlpack_exchange_api__");
  if (!address.is_valid() || !PyLong_Check(address.ptr())) return nullptr;
  const void* table = PyLong_AsVoidPtr(address.ptr());
  if (!table) PyErr_Clear();
  return usable(table);
}

// torch.Tensor, or nothing where torch is not imported.
nb::object torch_tensor_class() {
  const nb::object modules = nb::module_::import_("sys").attr("modules");
  const nb::object torch = modules.attr("get")("torch");
  return torch.is_none() ? nb::object() : nb::getattr(torch, "Tensor", nb::handle());
}

Producer examine(PyTypeObject* type) {
  Producer producer{type};
  if (PyType_IsSubtype(type, reinterpret_cast<PyTypeObject*>(nb::type<Tensor>().ptr()))) {
    producer.way = Producer::Way::Own;
    return producer;
  }
  const nb::object torch_tensor = torch_tensor_class();
  if (torch_tensor.is_valid() && PyType_IsSubtype(type, reinterpret_cast<PyTypeObject*>(torch_tensor.ptr()))) {
    producer.is_torch = true;
    producer.is_dispatched =
        !attribute(type, "__torch_dispatch__").is(torch_tensor.attr("__torch_dispatch__"));
  }
  producer.api = exchange_api(type);
  if (producer.api) producer.way = Producer::Way::Exchange;
  else if (attribute(type, "__dlpack__").is_valid()) producer.way = Producer::Way::Protocol;
  return producer;
}

int current_torch_stream(int32_t, int32_t device_id, void** out) {
  try {
    const nb::object stream = nb::module_::import_("torch").attr("cuda").attr("current_stream")(device_id);
    *out = reinterpret_cast<void*>(nb::cast<uintptr_t>(stream.attr("cuda_stream")));
    return 0;
  } catch (nb::python_error& error) {
    error.restore();
    return -1;
  }
}

}  // namespace

const DLPackExchangeAPI* torch_streams() {
  static const DLPackExchangeAPI table{{{kDLPackMajor, kDLPackMinor}, nullptr}, nullptr, nullptr, nullptr, nullptr,
                                       current_torch_stream};
  return &table;
}

Producer producer_of(PyTypeObject* type) {
  static Producer table[16];
  Producer& place = table[(reinterpret_cast<uintptr_t>(type) >> 5) % 16];
  if (place.type == type) [[likely]] return place;
  const Producer found = examine(type);
  if (found.way == Producer::Way::None) return found;  // it may learn to be one
  Py_INCREF(reinterpret_cast<PyObject*>(type));
  PyTypeObject* before = std::exchange(place, found).type;
  Py_XDECREF(reinterpret_cast<PyObject*>(before));
  return found;
}

bool is_lazily_changed(nb::handle tensor, const char* question) {
  const nb::object answer = tensor.attr(question)();
  return nb::cast<bool>(answer);
}

}  // namespace npu::bindings
