// Kernels that are Python callables: calls go from C++ to Python and return a Status.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <set>

#include "bindings/arguments.h"
#include "bindings/bindings.h"
#include "bindings/kept.h"
#include "bindings/tensor_class.h"
#include "bindings/tensors.h"
#include "bindings/unlocked.h"
#include "core/library.h"
#include "core/registry.h"

namespace npu::bindings {
namespace {

// A kernel that calls Python. `launch` and the others are wrapped by npu_cuda.extension.python_kernels, which says what they get.
// `supported` and `workspace_bytes` may be None.
struct PythonFunctions {
  nb::object launch;
  nb::object supported;
  nb::object workspace_bytes;
};

// Tensors whose memory is out of reach when this object goes.
class Views {
 public:
  Views() = default;
  Views(const Views&) = delete;
  Views& operator=(const Views&) = delete;
  ~Views() {
    for (const auto& memory : memories_) memory->end();
  }

  nb::list of(const TensorDesc* tensors, int count) {
    nb::list list;
    for (int i = 0; i < count; ++i) list.append(view(tensors[i]));
    return list;
  }

  // Refuses where a tensor that the kernel made of them by DLPack is still there: its memory is about to go.
  Status require_dropped() const {
    if (!is_exported()) return {};
    nb::module_::import_("gc").attr("collect")();  // tensors in reference cycles are not kept on purpose
    if (!is_exported()) return {};
    return Status::invalid("it kept a tensor that from_dlpack made of one of its call, in memory of the caller: "
                           "copy what is needed later");
  }

  // The workspace as bytes; None where the kernel has none.
  nb::object of_workspace(const OpCall& call) {
    if (call.workspace_bytes == 0) return nb::none();
    TensorDesc desc = call.outputs[0];  // for its device
    desc.data = call.workspace;
    desc.dtype = {1, 8, 1};
    desc.rank = 1;
    desc.shape[0] = static_cast<int64_t>(call.workspace_bytes);
    check(complete(&desc, nullptr));
    return view(desc);
  }

 private:
  bool is_exported() const {
    return std::any_of(memories_.begin(), memories_.end(), [](const auto& memory) { return memory->exports() > 0; });
  }

  nb::object view(const TensorDesc& desc) {
    Device* device = nullptr;
    check(find_device(static_cast<DeviceType>(desc.device_type), desc.device_id, &device));
    memories_.push_back(Memory::borrow(device, desc.data, static_cast<uint64_t>(span_bytes(desc))));
    return nb::cast(Tensor(memories_.back(), desc));
  }

  std::vector<std::shared_ptr<Memory>> memories_;
};

template <class Number>
nb::object number_at(const char* place, Number standard) {
  if (place) std::memcpy(&standard, place, sizeof standard);
  return nb::cast(standard);
}

nb::object value_of(const AttrField& field, const char* data) {
  const char* place = data ? data + field.offset : nullptr;
  switch (field.code) {
    case 'i': return number_at(place, static_cast<int32_t>(field.default_value));
    case 'I': return number_at(place, static_cast<uint32_t>(field.default_value));
    case 'q': return number_at(place, static_cast<int64_t>(field.default_value));
    case 'Q': return number_at(place, static_cast<uint64_t>(field.default_value));
    case 'f': return number_at(place, static_cast<float>(field.default_value));
    default: return number_at(place, field.default_value);
  }
}

// The attributes of a call by name, in the types of their schema.
nb::dict decode_attrs(const OpInfo& op, const AttrBlob& attrs) {
  nb::dict values;
  if (!op.schema) return values;
  const auto* data = static_cast<const char*>(attrs.bytes ? attrs.data : nullptr);
  for (const AttrField& field : op.schema->fields) values[field.name.c_str()] = value_of(field, data);
  return values;
}

// Set when the interpreter ends: from then on no thread may take the GIL, and kernels of Python are gone.
std::atomic<bool> python_is_over{false};

class PythonKernel;
// Guarded by the GIL. Never destroyed.
std::set<PythonKernel*>& python_kernels() {
  static auto* all = new std::set<PythonKernel*>();
  return *all;
}

nb::object call_function(const nb::object& function, const nb::tuple& arguments) {
  PyObject* result = until_the_end([&] { return PyObject_Call(function.ptr(), arguments.ptr(), nullptr); });
  if (!result) throw nb::python_error();
  return nb::steal(result);
}

class PythonKernel final : public Kernel {
 public:
  PythonKernel(KernelTraits traits, PythonFunctions functions)
      : Kernel(std::move(traits)), functions_(std::move(functions)) {
    python_kernels().insert(this);
  }

  ~PythonKernel() override {
    if (python_is_over) return;  // forget() has been here
    const Gil gil;
    python_kernels().erase(this);
    functions_ = {};
  }

  void forget() { functions_ = {}; }

  Status supported(const OpCall& call) const override {
    if (python_is_over) return over();
    const Gil gil;
    if (!functions_.launch.is_valid()) return over();
    if (functions_.supported.is_none()) return {};
    try {
      const nb::object answer = ask(functions_.supported, call);
      if (answer.is_none()) return {};
      if (nb::isinstance<nb::str>(answer)) return Status::not_implemented(text_argument(answer, {traits().id.c_str(), "supported"}));
      PyErr_Format(PyExc_TypeError, "supported of the kernel %s returned %R: None or a reason is expected",
                   traits().id.c_str(), answer.ptr());
      return warned();
    } catch (nb::python_error& error) {
      error.restore();
      return warned();
    }
  }

  uint64_t workspace_bytes(const OpCall& call) const override {
    if (python_is_over) return 0;
    const Gil gil;
    if (!functions_.launch.is_valid() || functions_.workspace_bytes.is_none()) return 0;
    try {
      const nb::object answer = ask(functions_.workspace_bytes, call);
      return uint64_t(int_argument(answer, {traits().id.c_str(), "workspace_bytes"}, 0, INT64_MAX));
    } catch (nb::python_error& error) {
      error.restore();
    }
    (void)warned();
    return UINT64_MAX;  // more than any limit: the kernel is not chosen
  }

  Status launch(const OpCall& call) const override {
    if (python_is_over) return over();
    const Gil gil;
    if (!functions_.launch.is_valid()) return over();
    try {
      Views views;
      call_function(functions_.launch,
                    nb::make_tuple(views.of(call.inputs, call.num_inputs), views.of(call.outputs, call.num_outputs),
                                   attrs_of_op(call), reinterpret_cast<uintptr_t>(call.stream),
                                   views.of_workspace(call)));
      return views.require_dropped();
    } catch (nb::python_error& error) {
      error.restore();
      return python_failure();
    }
  }

 private:
  static Status over() { return Status::unavailable("the Python that this kernel is in has ended"); }

  nb::object ask(const nb::object& function, const OpCall& call) const {
    return call_function(function, nb::make_tuple(specs(call.inputs, call.num_inputs),
                                                  specs(call.outputs, call.num_outputs), attrs_of_op(call),
                                                  call.compute_capability));
  }

  // Turns the current exception into a refusal. Another kernel may run the call, so it is reported by a warning.
  Status warned() const {
    nb::object exception;
    const std::string text = take_exception_text(&exception);
    const std::string warning = "the kernel " + traits().id + " is left out, it failed to say what it supports: " + text;
    if (PyErr_WarnEx(PyExc_RuntimeWarning, warning.c_str(), 1) != 0) PyErr_WriteUnraisable(functions_.launch.ptr());
    return Status::not_implemented("it failed to say what it supports: " + text);
  }

  nb::dict attrs_of_op(const OpCall& call) const {
    return decode_attrs(*RegistryReader()->find_op(traits().kind), call.attrs);
  }

  static nb::list specs(const TensorDesc* tensors, int count) {
    nb::list list;
    for (int i = 0; i < count; ++i) {
      TensorSpec spec{tensors[i]};
      spec.desc.data = nullptr;
      list.append(nb::cast(spec));
    }
    return list;
  }

  PythonFunctions functions_;
};

void forget_all() {
  drop_all_kept();
  python_is_over = true;
  for (PythonKernel* kernel : python_kernels()) kernel->forget();
}

void register_kernel(const std::string& id, nb::handle kind, const std::string& device, int32_t priority,
                     uint32_t flags, nb::object launch, nb::object supported, nb::object workspace_bytes,
                     const std::string& origin) {
  std::string checked;
  check(read_name(id.c_str(), "register_kernel: kernel_id", &checked));
  if (device != "host" && device != "cuda") {
    raise(Status::invalid("register_kernel: device is '" + device + "'; 'host' and 'cuda' are possible"));
  }
  const DeviceType type = device == "host" ? DeviceType::Host : DeviceType::Cuda;
  KernelTraits traits{kind_argument(kind, "register_kernel"), checked, type, priority, flags, 0, 0, origin};
  auto kernel = std::make_shared<PythonKernel>(std::move(traits), PythonFunctions{launch, supported, workspace_bytes});
  check(KernelRegistry::instance().add({}, {std::move(kernel)}).at("register_kernel"));
}

}  // namespace

void bind_python_kernels(nb::module_& module) {
  module.def("register_kernel", &register_kernel, nb::arg("kernel_id"), nb::arg("kind"), nb::arg("device"),
             nb::arg("priority"), nb::arg("flags"), nb::arg("launch"), nb::arg("supported") = nb::none(),
             nb::arg("workspace_bytes") = nb::none(), nb::arg("origin") = "Python",
             nb::sig("def register_kernel(kernel_id: str, kind: OpKind | int, device: str, priority: int, flags: int, "
                     "launch: Callable[..., None], supported: Callable[..., str | None] | None = None, "
                     "workspace_bytes: Callable[..., int] | None = None, origin: str = 'Python') -> None"),
             "Add a kernel in Python. npu_cuda.kernel does that with more comfort.");
  module.def(
      "remove_kernel",
      [](const std::string& id) { check(KernelRegistry::instance().remove(id).at("remove_kernel")); },
      nb::arg("kernel_id"), "Take a kernel out of the registry. Programs and graphs that chose it keep it.");
  nb::module_::import_("atexit").attr("register")(nb::cpp_function(&forget_all));
}

}  // namespace npu::bindings
