// op_call(), which is called for every op of an eager program: a plain function of C, which takes its arguments as
// Python passes them. A function of nanobind makes objects of defaults and looks at each argument twice.
#include <algorithm>
#include <array>
#include <new>

#include "bindings/bindings.h"
#include "bindings/calls.h"

namespace npu::bindings {
namespace {

constexpr std::array kNames{"kind", "inputs", "outputs", "schema_id", "attrs_bytes", "stream_handle"};
constexpr size_t kRequired = 3;
using Values = std::array<nb::handle, kNames.size()>;

[[noreturn, gnu::cold]] void raise_misfit(const std::string& problem) { raise_type_error("op_call: " + problem); }

[[gnu::noinline]] void read_keywords(PyObject* const* values, nb::handle names, Values* into) {
  const nb::tuple all = nb::borrow<nb::tuple>(names);
  for (size_t i = 0; i < all.size(); ++i) {
    const std::string name = nb::cast<std::string>(all[i]);
    const auto found = std::find(kNames.begin(), kNames.end(), name);
    if (found == kNames.end()) raise_misfit("there is no argument '" + name + "'");
    nb::handle& place = (*into)[size_t(found - kNames.begin())];
    if (place.is_valid()) raise_misfit("the argument '" + name + "' is given twice");
    place = values[i];
  }
}

Values read_arguments(PyObject* const* values, size_t count, nb::handle names) {
  if (count > kNames.size()) {
    raise_misfit(std::to_string(count) + " arguments are given, and it takes " + std::to_string(kNames.size()));
  }
  Values read;
  for (size_t i = 0; i < count; ++i) read[i] = values[i];
  if (names.is_valid()) read_keywords(values + count, names, &read);
  for (size_t i = 0; i < kRequired; ++i) {
    if (!read[i].is_valid()) raise_misfit(std::string("the argument '") + kNames[i] + "' is missing");
  }
  return read;
}

PyObject* op_call(PyObject*, PyObject* const* values, Py_ssize_t count, PyObject* names) {
  try {
    const auto [kind, inputs, outputs, schema_id, attrs_bytes, stream_handle] =
        read_arguments(values, size_t(count), names);
    call_op(kind, {inputs, outputs, schema_id, attrs_bytes, stream_handle});
    return nb::none().release().ptr();
  } catch (nb::python_error& error) {
    error.restore();
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_RuntimeError, error.what());
  }
  return nullptr;
}

constexpr const char* kDoc =
    "op_call(kind, inputs, outputs, schema_id=0, attrs_bytes=b'', stream_handle=0)\n--\n\n"
    "Run one op: the first kernel that takes these tensors writes the outputs.\n\n"
    "Nothing is copied and nothing waits. Autograd does not see the call.\n\n"
    "Args:\n"
    "    kind: The op: an OpKind, or the number that kinds() has for its name.\n"
    "    inputs: A list or tuple of tensors: PyTorch's, NumPy's, Tensor, or what else has __dlpack__. All\n"
    "        tensors of a call are on one device; shapes and dtypes are up to the op.\n"
    "    outputs: The same. They may lie in the memory of an input only where the op says so.\n"
    "    schema_id: Of the attributes; 0, without bytes, stands for the defaults.\n"
    "    attrs_bytes: The attributes, as npu_cuda.attrs() packs them.\n"
    "    stream_handle: A cudaStream_t, or what graph_begin() returned. 0 is the stream that is current in\n"
    "        PyTorch for its tensors, and the default stream of the device for others.\n\n"
    "Raises:\n"
    "    InvalidArgumentError: Counts, devices, pointers, attributes, or outputs that overlap.\n"
    "    NotSupportedError: No kernel takes this; the text says for each why not.\n"
    "    DeviceError: The launch failed.\n"
    "    TypeError: An argument is of another type than stated here.";

}  // namespace

void bind_op_call(nb::module_& module) {
  // PyMethodDef has one type for functions of all conventions.
  static PyMethodDef method{"op_call", reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(&op_call)),
                            METH_FASTCALL | METH_KEYWORDS, kDoc};
  const nb::object name = module.attr("__name__");
  module.attr("op_call") = nb::steal(PyCFunction_NewEx(&method, nullptr, name.ptr()));
}

}  // namespace npu::bindings
