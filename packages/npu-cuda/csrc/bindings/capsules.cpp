#include "bindings/capsules.h"

namespace npu::bindings {
namespace {

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

Status open_capsule(nb::handle capsule, ExportedTensor* out) {
  if (PyCapsule_IsValid(capsule.ptr(), kNewName)) {
    auto* managed = static_cast<DLManagedTensorVersioned*>(PyCapsule_GetPointer(capsule.ptr(), kNewName));
    if (managed->version.major != kDLPackMajor) {
      return Status::invalid("is exported as version " + std::to_string(managed->version.major) +
                             " of DLPack; version 1 was asked for");
    }
    *out = {&managed->dl_tensor, (managed->flags & kDLPackReadOnly) != 0, (managed->flags & kDLPackIsCopied) != 0};
    return {};
  }
  if (!PyCapsule_IsValid(capsule.ptr(), kOldName)) {
    return Status::invalid("has a __dlpack__ that returned no capsule of DLPack");
  }
  out->tensor = &static_cast<DLManagedTensor*>(PyCapsule_GetPointer(capsule.ptr(), kOldName))->dl_tensor;
  return {};
}

nb::object make_capsule(DLManagedTensorVersioned* managed) {
  nb::object capsule = nb::steal(PyCapsule_New(managed, kNewName, drop_new));
  if (capsule.is_valid()) return capsule;
  if (managed->deleter) managed->deleter(managed);
  throw nb::python_error();
}

nb::object make_capsule(DLManagedTensor* managed) {
  nb::object capsule = nb::steal(PyCapsule_New(managed, kOldName, drop_old));
  if (capsule.is_valid()) return capsule;
  if (managed->deleter) managed->deleter(managed);
  throw nb::python_error();
}

}  // namespace npu::bindings
