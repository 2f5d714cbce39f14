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

// The first table of our version in the chain that has what is called; null if there is none.
const DLPackExchangeAPI* usable(const void* table) {
  auto* header = static_cast<const DLPackExchangeAPIHeader*>(table);
  while (header && (header->version.major != kDLPackMajor || header->version.minor < kExchangeMinor)) {
    header = header->prev_api;
  }
  auto* api = reinterpret_cast<const DLPackExchangeAPI*>(header);
  return api && api->managed_tensor_from_py_object_no_sync && api->current_work_stream ? api : nullptr;
}

const DLPackExchangeAPI* exchange_api(PyTypeObject* type, bool is_torch) {
  if (const nb::object capsule = attribute(type, "__dlpack_c_exchange_api__"); capsule.is_valid()) {
    const void* table = PyCapsule_GetPointer(capsule.ptr(), "dlpack_exchange_api");
    if (!table) PyErr_Clear();
    return usable(table);
  }
  // What the package torch-c-dlpack-ext adds to older versions of PyTorch: the address as an int, which says
  // nothing of what is there. Others that have such an attribute are not believed.
  if (!is_torch) return nullptr;
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
  producer.api = exchange_api(type, producer.is_torch);
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

constexpr const char* kOldName = "dltensor";
constexpr const char* kNewName = "dltensor_versioned";

// Who takes a tensor out of a capsule renames it, and calls the deleter himself.
template <class Managed>
void drop(PyObject* capsule, const char* name) {
  if (!PyCapsule_IsValid(capsule, name)) return;
  auto* managed = static_cast<Managed*>(PyCapsule_GetPointer(capsule, name));
  if (managed->deleter) managed->deleter(managed);
}
void drop_old(PyObject* capsule) { drop<DLManagedTensor>(capsule, kOldName); }
void drop_new(PyObject* capsule) { drop<DLManagedTensorVersioned>(capsule, kNewName); }

template <class Managed>
nb::object make(Managed* managed, const char* name, PyCapsule_Destructor drop) {
  nb::object capsule = nb::steal(PyCapsule_New(managed, name, drop));
  if (capsule.is_valid()) return capsule;
  if (managed->deleter) managed->deleter(managed);
  throw nb::python_error();
}

nb::object call_dlpack(nb::handle tensor, const nb::dict& keywords) {
  const nb::object method = tensor.attr("__dlpack__");
  const nb::tuple nothing;
  nb::object capsule = nb::steal(PyObject_Call(method.ptr(), nothing.ptr(), keywords.ptr()));
  if (!capsule.is_valid()) throw nb::python_error();
  return capsule;
}

// The producer makes its stream wait for nothing on the CPU. On cuda 1 is the legacy default stream; a stream that the
// caller gave by handle is in his order already (-1): to wait for others would break a capture.
void add_stream(nb::handle tensor, bool is_in_order, nb::dict& keywords) {
  const nb::object place = tensor.attr("__dlpack_device__")();
  const nb::object first = place[0];
  const long long type = PyLong_AsLongLong(first.ptr());
  if (type == -1 && PyErr_Occurred()) throw nb::python_error();
  if (type == kDLCUDA || type == kDLCUDAManaged) keywords["stream"] = is_in_order ? -1 : 1;
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

nb::object export_dlpack(nb::handle tensor, bool is_in_order) {
  nb::dict keywords;
  add_stream(tensor, is_in_order, keywords);
  nb::dict versioned;
  versioned.update(keywords);
  versioned["max_version"] = nb::make_tuple(uint32_t{kDLPackMajor}, uint32_t{kDLPackMinor});
  try {
    return call_dlpack(tensor, versioned);
  } catch (nb::python_error& error) {
    if (!error.matches(PyExc_TypeError)) throw;
  }
  return call_dlpack(tensor, keywords);  // a producer from before DLPack 1.0
}

Status open(const DLManagedTensorVersioned& managed, ExportedTensor* out) {
  if (managed.version.major != kDLPackMajor) {
    return Status::invalid("is exported as version " + std::to_string(managed.version.major) +
                           " of DLPack; version 1 was asked for");
  }
  *out = {&managed.dl_tensor, (managed.flags & kDLPackReadOnly) != 0, (managed.flags & kDLPackIsCopied) != 0};
  return {};
}

Status open_capsule(nb::handle capsule, ExportedTensor* out) {
  if (PyCapsule_IsValid(capsule.ptr(), kNewName)) {
    return open(*static_cast<DLManagedTensorVersioned*>(PyCapsule_GetPointer(capsule.ptr(), kNewName)), out);
  }
  if (!PyCapsule_IsValid(capsule.ptr(), kOldName)) {
    return Status::invalid("has a __dlpack__ that returned no capsule of DLPack");
  }
  out->tensor = &static_cast<DLManagedTensor*>(PyCapsule_GetPointer(capsule.ptr(), kOldName))->dl_tensor;
  return {};
}

nb::object make_capsule(DLManagedTensorVersioned* managed) { return make(managed, kNewName, drop_new); }

nb::object make_capsule(DLManagedTensor* managed) { return make(managed, kOldName, drop_old); }

}  // namespace npu::bindings
