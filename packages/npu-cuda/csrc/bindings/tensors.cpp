#include "bindings/tensors.h"

#include <algorithm>
#include <limits>

#include "bindings/producers.h"
#include "bindings/tensor_class.h"
#include "core/device.h"

namespace npu::bindings {
namespace {

// A stream of CUDA has no handle 0 here: cudaStreamLegacy is how the default stream is called by name.
void* const kLegacyStream = reinterpret_cast<void*>(1);

constexpr const char* kLazyHelp = ": its memory does not hold its values; call resolve_conj() or resolve_neg() on it";

[[noreturn, gnu::cold]] void raise_unreadable(nb::handle tensor, ArgName name) {
  nb::object cause;
  const std::string type = nb::type_name(tensor.type()).c_str();
  const std::string reason = take_exception_text(&cause);
  raise_from(name.text() + ", a " + type + ", cannot be used as a tensor in memory: " + reason, cause);
}

// Tensor.__new__ makes an object in which nothing is.
const Tensor& own_tensor(nb::handle tensor, ArgName name) {
  if (!nb::inst_ready(tensor)) {
    raise_type_error(name.text() + " is a Tensor that was never initialized: make one with empty()");
  }
  const Tensor* own = nb::inst_ptr<Tensor>(tensor);
  own->require_memory();
  return *own;
}

// The flags of lazy changes are not part of DLPack. Complex tensors may have one; real ones only where they are the
// imaginary part of a complex one, which has a stride of two or a single element.
void require_resolved(nb::handle tensor, const TensorDesc& desc, ArgName name, Hold hold) {
  const bool is_complex = desc.dtype.code == 5;
  if (is_complex && is_lazily_changed(tensor, "is_conj")) {
    raise(Status::invalid(name.text() + " is lazily conjugated" + kLazyHelp));
  }
  const bool may_be_negated = is_complex || !is_contiguous(desc) || desc.numel == 1 || hold == Hold::Longer;
  if (may_be_negated && is_lazily_changed(tensor, "is_neg")) {
    raise(Status::invalid(name.text() + " is lazily negated" + kLazyHelp));
  }
}

}  // namespace

TensorArguments::~TensorArguments() {
  for (int i = 0; i < num_owners_; ++i) Py_DECREF(owners_[i]);
}

bool TensorArguments::take_expected(const DLTensor& dl) {
  const bool is_expected =
      count_ < CallMemo::kMostTensors && describe_as(memo_->tensors[count_], dl, &descs_[count_]);
  if (!is_expected) memo_ = nullptr;
  return is_expected;
}

void TensorArguments::compare(const TensorDesc& desc) {
  TensorDesc known = memo_->tensors[std::min(count_, CallMemo::kMostTensors - 1)];
  known.data = desc.data;
  const bool is_expected = count_ < CallMemo::kMostTensors && desc.data && is_same_tensor(desc, known) &&
                           desc.alignment == known.alignment;
  if (!is_expected) memo_ = nullptr;
}

void TensorArguments::make_room(size_t count) {
  room_ = count;
  many_owners_.resize(kMostOwners * count);
  many_descs_.resize(count);
  if (owners_ == few_owners_) std::copy_n(few_owners_, num_owners_, many_owners_.data());
  if (descs_ == few_descs_) std::copy_n(few_descs_, count_, many_descs_.data());
  owners_ = many_owners_.data();
  descs_ = many_descs_.data();
}

int TensorArguments::add_all(nb::handle list, const char* name, Role role) {
  const bool is_list = PyList_Check(list.ptr());
  if (!is_list && !PyTuple_Check(list.ptr())) {
    raise_other_type({function_, name}, "a list or tuple of tensors", list);
  }
  const Py_ssize_t size = is_list ? PyList_Size(list.ptr()) : PyTuple_Size(list.ptr());
  if (size_t(size) + size_t(count_) > room_) [[unlikely]] make_room(size_t(size) + size_t(count_));
  for (Py_ssize_t i = 0; i < size; ++i) {
    PyObject* item = is_list ? PyList_GetItem(list.ptr(), i) : PyTuple_GetItem(list.ptr(), i);
    if (!item) throw nb::python_error();  // Python code of an earlier tensor has shortened the list
    add(item, {function_, name, int(i)}, role);
  }
  return int(size);
}

void TensorArguments::add(nb::handle tensor, ArgName name, Role role) {
  Py_INCREF(tensor.ptr());
  own(tensor.ptr());
  const Producer producer = producer_of(Py_TYPE(tensor.ptr()));
  if (hold_ == Hold::Longer && producer.is_torch && !producer.is_dispatched) {
    // Another tensor on the same memory: `tensor.data = other` takes the memory from the first one only.
    nb::object detached = tensor.attr("detach")();
    read(detached, producer, name, role);
    own(detached.release().ptr());
  } else {
    read(tensor, producer, name, role);
  }
  ++count_;
}

void TensorArguments::read(nb::handle tensor, const Producer& producer, ArgName name, Role role) {
  TensorDesc& desc = descs_[count_];
  if (producer.is_dispatched) {
    raise(Status::invalid(name.text() + " is a " + nb::type_name(tensor.type()).c_str() +
                          ", which has __torch_dispatch__ and may have no memory; give the plain tensor in it"));
  }
  switch (producer.way) {
    case Producer::Way::Own:
      desc = own_tensor(tensor, name).desc();
      has_own_tensors_ = true;
      if (memo_) compare(desc);
      break;
    case Producer::Way::Exchange: read_exchange(tensor, producer, name, role); break;
    case Producer::Way::Protocol:
      read_protocol(tensor, producer, name, role);
      if (memo_) compare(desc);
      break;
    case Producer::Way::None:
      raise_other_type(name, "a tensor", tensor, ", which has no __dlpack__");
  }
  if (producer.is_torch) require_resolved(tensor, desc, name, hold_);
  if (desc.device_type == NPU_CUDA && !stream_source_) {
    stream_source_ = producer.is_torch && !producer.api ? torch_streams() : producer.api;
  }
}

void TensorArguments::read_exchange(nb::handle tensor, const Producer& producer, ArgName name, Role role) {
  const DLPackExchangeAPI* api = producer.api;
  // The short way says neither who keeps the memory nor whether it may be written; tensors of PyTorch always
  // may.
  const bool is_enough = producer.is_torch || (hold_ == Hold::ForTheCall && role == Role::Input);
  if (is_enough && api->dltensor_from_py_object_no_sync) [[likely]] {
    DLTensor dl;
    if (api->dltensor_from_py_object_no_sync(tensor.ptr(), &dl) != 0) raise_unreadable(tensor, name);
    if (memo_ && take_expected(dl)) [[likely]] return;
    if (Status status = describe(dl, &descs_[count_]); !status.ok()) raise(std::move(status).at(name.text()));
    return;
  }
  DLManagedTensorVersioned* managed = nullptr;
  if (api->managed_tensor_from_py_object_no_sync(tensor.ptr(), &managed) != 0) raise_unreadable(tensor, name);
  nb::object capsule = make_capsule(managed);
  own(capsule.release().ptr());
  memo_ = nullptr;
  ExportedTensor exported;
  check(open(*managed, &exported).at(name.text()));
  take(exported, name, role);
}

void TensorArguments::read_protocol(nb::handle tensor, const Producer& producer, ArgName name, Role role) {
  // PyTorch refuses to export tensors that require gradients, which are irrelevant here.
  nb::object source = nb::borrow(tensor);
  nb::object capsule;
  try {
    if (producer.is_torch) source = tensor.attr("detach")();
    capsule = export_dlpack(source, stream_ || producer.is_torch);  // of PyTorch we ask what its stream is
  } catch (nb::python_error& error) {
    error.restore();
    raise_unreadable(tensor, name);
  }
  ExportedTensor exported;
  if (Status status = open_capsule(capsule, &exported); !status.ok()) raise(std::move(status).at(name.text()));
  own(capsule.release().ptr());
  take(exported, name, role);
}

void TensorArguments::take(const ExportedTensor& exported, ArgName name, Role role) {
  if (exported.is_read_only && role == Role::Output) {
    raise(Status::invalid(name.text() + " is read-only, and cannot be an output"));
  }
  if (exported.is_copy && role == Role::Output) {
    raise(Status::invalid(name.text() + " is exported as a copy, and cannot be an output: what is written is lost"));
  }
  check(describe(*exported.tensor, &descs_[count_]).at(name.text()));
}

void* TensorArguments::stream() const {
  if (stream_) return stream_;
  const TensorDesc* first = count_ ? descs_ : nullptr;
  const int32_t type = first ? first->device_type : int32_t{NPU_CPU};
  return current_stream(stream_source_, type, first ? first->device_id : 0);
}

void TensorArguments::note_use(void* stream) const {
  Device* device = nullptr;
  check(find_device(static_cast<DeviceType>(descs_[0].device_type), descs_[0].device_id, &device));
  if (stream == device->default_stream()) return;
  std::shared_ptr<Event> event;
  check(device->mark(stream, &event));
  for (int i = 0; i < num_owners_; ++i) bindings::note_use({nb::borrow(owners_[i])}, stream, event);
}

void TensorArguments::give_owners(std::vector<nb::object>* to) {
  for (int i = 0; i < num_owners_; ++i) to->push_back(nb::steal(owners_[i]));
  num_owners_ = 0;
}

void* address_as(const TensorDesc& known, nb::handle tensor) {
  const Producer producer = producer_of(Py_TYPE(tensor.ptr()));
  if (!producer.is_torch || producer.is_dispatched || producer.way != Producer::Way::Exchange) return nullptr;
  if (!producer.api->dltensor_from_py_object_no_sync) return nullptr;
  DLTensor dl;
  if (producer.api->dltensor_from_py_object_no_sync(tensor.ptr(), &dl) != 0) return PyErr_Clear(), nullptr;
  if (!is_like(known, dl)) return nullptr;
  void* const address = static_cast<char*>(dl.data) + dl.byte_offset;
  return reinterpret_cast<uintptr_t>(address) % uintptr_t(known.alignment) == 0 ? address : nullptr;
}

void* current_stream(const DLPackExchangeAPI* source, int32_t device_type, int32_t device_id) {
  if (device_type == NPU_CUDA && source) {
    void* stream = nullptr;
    if (source->current_work_stream(kDLCUDA, device_id, &stream) != 0) throw nb::python_error();
    return stream ? stream : kLegacyStream;
  }
  Device* device = nullptr;
  check(find_device(static_cast<DeviceType>(device_type), device_id, &device));
  return device->default_stream();
}

}  // namespace npu::bindings
