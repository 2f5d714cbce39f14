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

[[gnu::cold]] Status unknown_place(const DLDevice& device) {
  return Status::invalid("is on a device of type " + std::to_string(device.device_type) +
                         " of DLPack; the CPU (1) and CUDA (2) are possible");
}

Status find_place(const DLDevice& device, TensorDesc* out) {
  switch (device.device_type) {
    case kDLCPU:
    case kDLCUDAHost:  // pinned memory of the CPU
      out->device_type = NPU_CPU;
      out->device_id = 0;
      return {};
    case kDLCUDA:
    case kDLCUDAManaged:
      out->device_type = NPU_CUDA;
      out->device_id = device.device_id;
      return {};
  }
  return unknown_place(device);
}

// As PyTorch sees it: strides of axes of size 1 do not matter, and an empty tensor is contiguous.
bool is_dense(const TensorDesc& tensor) {
  if (tensor.numel == 0) return true;
  int64_t expected = 1;
  for (int axis = tensor.rank - 1; axis >= 0; --axis) {
    if (tensor.shape[axis] == 1) continue;
    if (tensor.strides[axis] != expected) return false;
    expected *= tensor.shape[axis];
  }
  return true;
}

Status count_elements(TensorDesc* tensor) {
  int64_t numel = 1, without_empty = 1;  // numel is 0 where one axis is; the others must be sane all the same
  for (int axis = 0; axis < tensor->rank; ++axis) {
    const int64_t size = tensor->shape[axis];
    if (size < 0) return Status::invalid("has the size " + std::to_string(size) + " in axis " + std::to_string(axis));
    numel *= size != 0;
    if (__builtin_mul_overflow(without_empty, std::max<int64_t>(size, 1), &without_empty)) {
      return Status::invalid("has more elements than an int64 can count");
    }
  }
  int64_t bytes = 0;
  if (__builtin_mul_overflow(without_empty, item_bytes(tensor->dtype), &bytes)) {
    return Status::invalid("has more bytes than an int64 can count");
  }
  tensor->numel = numel * without_empty;
  return {};
}

void set_dense_strides(TensorDesc* tensor) {
  int64_t stride = 1;
  for (int axis = tensor->rank - 1; axis >= 0; --axis) {
    tensor->strides[axis] = stride;
    stride *= std::max<int64_t>(tensor->shape[axis], 1);
  }
}

Status set_strides(TensorDesc* tensor, const int64_t* strides) {
  int64_t last = item_bytes(tensor->dtype);  // bytes to the end of the last element
  for (int axis = 0; axis < tensor->rank; ++axis) {
    const bool matters = tensor->shape[axis] > 1 && tensor->numel != 0;
    tensor->strides[axis] = matters ? strides[axis] : std::max<int64_t>(strides[axis], 0);
    if (tensor->strides[axis] < 0) {
      return Status::invalid("has the stride " + std::to_string(strides[axis]) + " in axis " + std::to_string(axis) +
                             "; negative strides are not possible: make a contiguous copy");
    }
    int64_t step = 0;
    if (matters && (__builtin_mul_overflow(tensor->strides[axis], item_bytes(tensor->dtype), &step) ||
                    __builtin_mul_overflow(step, tensor->shape[axis] - 1, &step) ||
                    __builtin_add_overflow(last, step, &last))) {
      return Status::invalid("spans more bytes than an int64 can count");
    }
  }
  return {};
}

// Does in one pass what mostly is to be done: numel, strides and flags of a tensor that is not empty and has the strides
// of row-major order. False, and nothing is decided, where it is another one, or one that is refused.
bool complete_dense(TensorDesc* tensor, const int64_t* strides) {
  int64_t numel = 1;
  for (int axis = tensor->rank - 1; axis >= 0; --axis) {
    const int64_t size = tensor->shape[axis], stride = strides[axis];
    const bool is_expected = size == 1 ? stride >= 0 : stride == numel;
    if (size <= 0 || !is_expected || __builtin_mul_overflow(numel, size, &numel)) return false;
    tensor->strides[axis] = stride;
  }
  int64_t bytes = 0;
  if (__builtin_mul_overflow(numel, item_bytes(tensor->dtype), &bytes)) return false;
  tensor->numel = numel;
  tensor->flags = NPU_TENSOR_CONTIGUOUS;
  return true;
}

// Where describe() makes of a tensor what is known of another one, the address aside, does the same; else false.
bool describe_as(const TensorDesc& known, const DLTensor& dl, TensorDesc* out) {
  const bool is_there = (dl.device.device_type == kDLCPU && known.device_type == NPU_CPU) ||
                        (dl.device.device_type == kDLCUDA && known.device_type == NPU_CUDA &&
                         dl.device.device_id == known.device_id);
  const DType dtype{dl.dtype.code, dl.dtype.bits, dl.dtype.lanes};
  out->data = static_cast<char*>(dl.data) + dl.byte_offset;
  if (!is_there || !dl.data || !dl.strides || dl.ndim != known.rank || !(dtype == known.dtype)) return false;
  if (alignment_of(out->data) != known.alignment) return false;
  out->numel = known.numel;
  out->rank = known.rank;
  out->dtype = known.dtype;
  out->device_type = known.device_type;
  out->device_id = known.device_id;
  out->flags = known.flags;
  out->alignment = known.alignment;
  for (int axis = 0; axis < known.rank; ++axis) {
    if (dl.shape[axis] != known.shape[axis] || dl.strides[axis] != known.strides[axis]) return false;
    out->shape[axis] = known.shape[axis];
    out->strides[axis] = known.strides[axis];
  }
  return true;
}

[[gnu::noinline]] Status complete_any(TensorDesc* tensor, const int64_t* strides) {
  NPU_TRY(count_elements(tensor));
  if (strides) NPU_TRY(set_strides(tensor, strides));
  else set_dense_strides(tensor);
  tensor->flags = is_dense(*tensor) ? uint32_t{NPU_TENSOR_CONTIGUOUS} : 0;
  return {};
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

int TensorArguments::add_all(nb::handle list, const char* name, Role role, int most) {
  const bool is_list = PyList_Check(list.ptr());
  if (!is_list && !PyTuple_Check(list.ptr())) {
    raise_other_type({function_, name}, "a list or tuple of tensors", list);
  }
  const Py_ssize_t size = is_list ? PyList_Size(list.ptr()) : PyTuple_Size(list.ptr());
  if (size > most) {
    raise(Status::invalid(ArgName{function_, name}.text() + " has " + std::to_string(size) + " tensors; at most " +
                          std::to_string(most) + " are possible"));
  }
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

Status complete(TensorDesc* tensor, const int64_t* strides) {
  if (!strides || !complete_dense(tensor, strides)) NPU_TRY(complete_any(tensor, strides));
  tensor->alignment = alignment_of(tensor->data);
  return {};
}

Status describe(const DLTensor& dl, TensorDesc* out) {
  if (dl.ndim < 0 || dl.ndim > NPU_MAX_RANK) return no_such_rank(dl.ndim);
  if (dl.ndim > 0 && !dl.shape) return Status::invalid("has rank " + std::to_string(dl.ndim) + ", and no shape");
  if (dl.dtype.bits == 0 || dl.dtype.lanes == 0) return Status::invalid("has a dtype of 0 bits");
  NPU_TRY(find_place(dl.device, out));
  out->data = dl.data ? static_cast<char*>(dl.data) + dl.byte_offset : nullptr;
  out->rank = dl.ndim;
  out->dtype = {dl.dtype.code, dl.dtype.bits, dl.dtype.lanes};
  for (int axis = 0; axis < dl.ndim; ++axis) out->shape[axis] = dl.shape[axis];  // too few for a call of memmove
  return complete(out, dl.strides);
}

}  // namespace npu::bindings
