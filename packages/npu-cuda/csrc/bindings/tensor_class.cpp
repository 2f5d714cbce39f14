#include "bindings/tensor_class.h"

#include <cstring>

#include "bindings/bindings.h"
#include "bindings/kept.h"
#include "bindings/producers.h"
#include "bindings/tensors.h"
#include "bindings/unlocked.h"

namespace npu::bindings {
namespace {

// Visits all elements in row-major order with their offset from the first, in elements.
template <class Visit>
void for_each_offset(const TensorDesc& desc, Visit visit) {
  int64_t place[NPU_MAX_RANK] = {};
  int64_t offset = 0;
  for (int64_t i = 0; i < desc.numel; ++i) {
    visit(offset);
    for (int axis = desc.rank - 1; axis >= 0; --axis) {
      offset += desc.strides[axis];
      if (++place[axis] < desc.shape[axis]) break;
      offset -= desc.strides[axis] * desc.shape[axis];
      place[axis] = 0;
    }
  }
}

// Copies after all launches that use the memory, without the GIL.
void copy(Memory& memory, void* to, const void* from, uint64_t bytes, Direction direction) {
  if (bytes == 0) return;
  Device* device = memory.device();
  const StreamUses uses = memory.uses();
  check(without_gil([&] {
    NPU_TRY(uses.wait());
    return device->copy(to, from, bytes, direction, device->default_stream());
  }));
}

std::vector<char> read_span(Memory& memory, const TensorDesc& desc) {
  std::vector<char> span(size_t(span_bytes(desc)));
  copy(memory, span.data(), desc.data, span.size(), Direction::FromDevice);
  return span;
}

void write_span(Memory& memory, const TensorDesc& desc, const void* data) {
  copy(memory, desc.data, data, uint64_t(span_bytes(desc)), Direction::ToDevice);
}

// What an exported tensor needs of us until the consumer drops it.
template <class Managed>
struct Export {
  Managed managed{};
  std::shared_ptr<Memory> memory;
  TensorDesc desc;
  explicit Export(const Tensor& source) : memory(source.memory()), desc(source.desc()) {
    managed.dl_tensor = {desc.data, {desc.device_type, desc.device_id}, desc.rank,
                         {desc.dtype.code, desc.dtype.bits, desc.dtype.lanes}, desc.shape, desc.strides, 0};
    managed.manager_ctx = this;
    managed.deleter = [](Managed* self) { delete static_cast<Export*>(self->manager_ctx); };
    ++memory->exports();
  }
  ~Export() { --memory->exports(); }
};

Tensor make_empty(nb::handle shape, nb::handle dtype, nb::handle device_name, nb::handle strides) {
  TensorDesc desc = desc_argument(dtype, shape, strides, "empty");
  Device* device = nullptr;
  check(find_device(text_argument(device_name, {"empty", "device"}), &device));
  drop_passed();
  desc.device_type = int32_t(device->type());
  desc.device_id = device->id();
  auto memory = Memory::allocate(device, uint64_t(span_bytes(desc)));
  desc.data = memory->data();
  check(complete(&desc, std::vector<int64_t>(desc.strides, desc.strides + desc.rank).data()));
  return {std::move(memory), desc};
}

bool wants_versioned(nb::handle max_version) {
  if (max_version.is_none()) return false;
  const nb::object major = max_version[0];
  return int_argument(major, {"Tensor.__dlpack__", "max_version", 0}, 0, INT64_MAX) >= int64_t{kDLPackMajor};
}

}  // namespace

std::shared_ptr<Memory> Memory::allocate(Device* device, uint64_t bytes) {
  std::shared_ptr<Memory> memory(new Memory(device, bytes));
  if (bytes) check(device->allocate(bytes, &memory->data_).at("empty: " + std::to_string(bytes) + " bytes"));
  return memory;
}

std::shared_ptr<Memory> Memory::borrow(Device* device, void* data, uint64_t bytes) {
  std::shared_ptr<Memory> memory(new Memory(device, bytes));
  memory->data_ = data;
  memory->is_borrowed_ = true;
  return memory;
}

void Memory::wait() const {
  const StreamUses uses = uses_;
  check(without_gil([&] {
    NPU_TRY(device_->synchronize(device_->default_stream()));
    return uses.wait();
  }));
}

bool holds_own_tensors(const Owners& owners) {
  const auto is_own = [](const nb::object& owner) { return nb::isinstance<Tensor>(owner); };
  return std::any_of(owners.begin(), owners.end(), is_own);
}

void note_use(const Owners& owners, void* stream, const std::shared_ptr<Event>& event) {
  for (const nb::object& owner : owners) {
    if (nb::isinstance<Tensor>(owner)) nb::inst_ptr<Tensor>(owner)->memory()->uses().note(stream, event);
  }
}

Memory::~Memory() {
  if (data_ && !is_borrowed_) device_->free(data_);
}

// To free memory of cuda waits for work that may need the GIL.
Tensor::~Tensor() {
  if (!memory_ || memory_.use_count() > 1 || memory_->device()->type() == DeviceType::Host) return;
  const Unlocked unlocked;
  memory_.reset();
}

void Tensor::require_memory() const {
  if (!memory_->is_over()) return;
  raise(Status::invalid("this tensor belongs to the call of a kernel that has returned: copy what is needed later"));
}

nb::object Tensor::dlpack(nb::handle stream, nb::handle max_version, nb::handle device, nb::handle copy) const {
  require_memory();
  const int wants_copy = PyObject_IsTrue(copy.ptr());
  if (wants_copy < 0) throw nb::python_error();
  if (wants_copy) raise(Status::invalid("Tensor.__dlpack__: copy=True is not possible"));
  const nb::tuple here = nb::make_tuple(desc_.device_type, desc_.device_id);
  if (!device.is_none() && !here.equal(device)) {
    raise(Status::invalid("Tensor.__dlpack__: dl_device is another device than that of the tensor"));
  }
  // -1: the consumer has put things in order. Launches without a stream went to the default one.
  const bool in_order =
      !stream.is_none() && int_argument(stream, {"Tensor.__dlpack__", "stream"}, -1, INT64_MAX) == -1;
  if (desc_.device_type != NPU_CPU && !in_order && !memory_->is_borrowed()) {
    memory_->wait();
  }
  if (!wants_versioned(max_version)) return make_capsule(&(new Export<DLManagedTensor>(*this))->managed);
  auto* exported = new Export<DLManagedTensorVersioned>(*this);
  exported->managed.version = {kDLPackMajor, kDLPackMinor};
  return make_capsule(&exported->managed);
}

nb::bytes Tensor::to_bytes() const {
  require_memory();
  const std::vector<char> span = read_span(*memory_, desc_);
  if (is_contiguous(desc_)) return nb::bytes(span.data(), span.size());
  const auto item = size_t(item_bytes(desc_.dtype));
  std::vector<char> packed;
  packed.reserve(size_t(nbytes(desc_)));
  for_each_offset(desc_, [&](int64_t offset) {
    const char* element = span.data() + size_t(offset) * item;
    packed.insert(packed.end(), element, element + item);
  });
  return nb::bytes(packed.data(), packed.size());
}

void Tensor::copy_from(nb::handle bytes) const {
  require_memory();
  const nb::bytes given = bytes_argument(bytes, {"Tensor.copy_from", "data"});
  if (given.size() != uint64_t(nbytes(desc_))) {
    raise(Status::invalid("Tensor.copy_from: " + text_of(desc_) + " has " + std::to_string(nbytes(desc_)) +
                          " bytes, not " + std::to_string(given.size())));
  }
  if (is_contiguous(desc_)) return write_span(*memory_, desc_, given.c_str());
  std::vector<char> span = read_span(*memory_, desc_);  // what lies between the elements stays
  const auto item = size_t(item_bytes(desc_.dtype));
  const char* next = given.c_str();
  for_each_offset(desc_, [&](int64_t offset) {
    std::memcpy(span.data() + size_t(offset) * item, next, item);
    next += item;
  });
  write_span(*memory_, desc_, span.data());
}

Tensor Tensor::view(nb::handle shape, nb::handle strides, nb::handle offset, nb::handle dtype) const {
  constexpr const char* kName = "Tensor.view";
  require_memory();
  const nb::object same = nb::cast(name_of(desc_.dtype));
  TensorDesc desc = desc_argument(dtype.is_none() ? nb::handle(same) : dtype, shape, strides, kName);
  const int64_t most = int64_t(memory_->bytes());
  const int64_t start = int_argument(offset, {kName, "offset"}, 0, most) * item_bytes(desc.dtype);
  const char* first = memory_->data() == nullptr ? nullptr : static_cast<char*>(desc_.data) + start;
  const int64_t begin = memory_->data() == nullptr ? start : first - memory_->data();
  if (begin > most || span_bytes(desc) > most - begin) {
    raise(Status::invalid(std::string(kName) + ": " + text_of(desc) + " at byte " + std::to_string(begin) +
                          " ends after the " + std::to_string(most) + " bytes of the tensor"));
  }
  desc.data = const_cast<char*>(first);
  desc.device_type = desc_.device_type;
  desc.device_id = desc_.device_id;
  check(complete(&desc, std::vector<int64_t>(desc.strides, desc.strides + desc.rank).data()));
  return {memory_, desc};
}

void bind_tensor(nb::module_& module) {
  nb::class_<Tensor>(module, "Tensor",
                     "Memory of a device as a tensor. Made by empty(); np.from_dlpack and torch.from_dlpack share it.")
      .def_prop_ro("shape", [](const Tensor& self) { return tuple_of(self.desc().shape, self.desc().rank); },
                   nb::sig("def shape(self) -> tuple[int, ...]"))
      .def_prop_ro("strides", [](const Tensor& self) { return tuple_of(self.desc().strides, self.desc().rank); },
                   nb::sig("def strides(self) -> tuple[int, ...]"), "In elements.")
      .def_prop_ro("dtype", [](const Tensor& self) { return name_of(self.desc().dtype); })
      .def_prop_ro("device", [](const Tensor& self) { return self.memory()->device()->name(); })
      .def_prop_ro("data_ptr", [](const Tensor& self) { return reinterpret_cast<uintptr_t>(self.desc().data); },
                   "The address of the first element; 0 where there is none.")
      .def_prop_ro("nbytes", [](const Tensor& self) { return nbytes(self.desc()); }, "Bytes of all elements.")
      .def("__repr__",
           [](const Tensor& self) { return "Tensor(" + text_of(self.desc()) + ", " + self.memory()->device()->name() + ")"; })
      .def("__dlpack__", &Tensor::dlpack, nb::kw_only(), nb::arg("stream") = nb::none(),
           nb::arg("max_version") = nb::none(), nb::arg("dl_device") = nb::none(), nb::arg("copy") = nb::none(),
           nb::sig("def __dlpack__(self, *, stream: int | None = None, max_version: tuple[int, int] | None = None, "
                   "dl_device: tuple[int, int] | None = None, copy: bool | None = None) -> object"))
      .def("__dlpack_device__",
           [](const Tensor& self) { return nb::make_tuple(self.desc().device_type, self.desc().device_id); },
           nb::sig("def __dlpack_device__(self) -> tuple[int, int]"))
      .def("to_bytes", &Tensor::to_bytes, "A copy of all elements, in row-major order.")
      .def("copy_from", &Tensor::copy_from, nb::arg("data"), nb::sig("def copy_from(self, data: Buffer) -> None"),
           "Set all elements, given in row-major order.\n\n"
           "Raises:\n"
           "    InvalidArgumentError: The data has another size than `nbytes`.")
      .def("view", &Tensor::view, nb::arg("shape"), nb::arg("strides") = nb::none(), nb::arg("offset") = 0,
           nb::arg("dtype") = nb::none(),
           nb::sig("def view(self, shape: Sequence[int], strides: Sequence[int] | None = None, offset: int = 0, "
                   "dtype: str | None = None) -> Tensor"),
           "Another tensor in the same memory, from `offset` elements (of the new dtype) after the first one.\n\n"
           "Raises:\n"
           "    InvalidArgumentError: It would end after the memory.");
  module.def("empty", &make_empty, nb::arg("shape"), nb::arg("dtype") = "float32", nb::arg("device") = "host",
             nb::arg("strides") = nb::none(),
             nb::sig("def empty(shape: Sequence[int], dtype: str = 'float32', device: str = 'host', "
                     "strides: Sequence[int] | None = None) -> Tensor"),
             "Make a tensor whose elements are not set.\n\n"
             "Args:\n"
             "    shape: At most 8 sizes.\n"
             "    dtype: A name as PyTorch has it: \"float32\", \"bfloat16\", \"int64\", \"bool\".\n"
             "    device: One that devices() names: \"host\", \"cuda:0\".\n"
             "    strides: In elements, not negative; None stands for contiguous.\n\n"
             "Raises:\n"
             "    InvalidArgumentError: There is no such dtype, shape or device.\n"
             "    UnavailableError: The device is not here; the text says why.\n"
             "    DeviceError: Its memory is used up.");
}

}  // namespace npu::bindings
