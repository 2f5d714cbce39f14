#include "bindings/arguments.h"

#include <limits>

namespace npu::bindings {
namespace {

std::string type_text(nb::handle value) { return nb::type_name(value.type()).c_str(); }

[[noreturn]] void raise_out_of_range(nb::handle value, ArgName name, int64_t low, int64_t high) {
  const nb::str text(value);
  raise(Status::invalid(name.text() + " is " + text.c_str() + "; " + std::to_string(low) + " to " +
                        std::to_string(high) + " are possible"));
}

}  // namespace

std::string ArgName::text() const {
  const std::string all = std::string(function) + ": " + name;
  return index < 0 ? all : all + "[" + std::to_string(index) + "]";
}

int64_t int_argument_of_any(nb::handle value, ArgName name, int64_t low, int64_t high) {
  nb::object number = nb::borrow(value);
  if (PyBool_Check(value.ptr()) || (!PyLong_Check(value.ptr()) && !PyIndex_Check(value.ptr()))) {
    raise_type_error(name.text() + " must be an int, not " + type_text(value));
  }
  if (!PyLong_Check(value.ptr())) {
    number = nb::steal(PyNumber_Index(value.ptr()));
    if (!number.is_valid() && PyErr_ExceptionMatches(PyExc_TypeError)) {  // of tensors with several elements
      PyErr_Clear();
      raise_type_error(name.text() + " must be an int, not this " + type_text(value));
    }
    if (!number.is_valid()) throw nb::python_error();
  }
  int overflow = 0;
  const int64_t result = PyLong_AsLongLongAndOverflow(number.ptr(), &overflow);
  if (overflow || result < low || result > high) [[unlikely]] raise_out_of_range(number, name, low, high);
  return result;
}

std::string text_argument(nb::handle value, ArgName name) {
  if (!PyUnicode_Check(value.ptr())) raise_type_error(name.text() + " must be a str, not " + type_text(value));
  Py_ssize_t size = 0;
  const char* text = PyUnicode_AsUTF8AndSize(value.ptr(), &size);
  if (text) return {text, size_t(size)};
  nb::object cause;
  const std::string reason = take_exception_text(&cause);
  raise_from(name.text() + " is no text in Unicode: " + reason, cause);
}

std::vector<int64_t> ints_argument(nb::handle value, ArgName name, int64_t low) {
  const bool is_text = PyUnicode_Check(value.ptr()) || PyBytes_Check(value.ptr()) || PyByteArray_Check(value.ptr());
  if (is_text || !PySequence_Check(value.ptr())) {
    raise_type_error(name.text() + " must be a list or tuple of ints, not " + type_text(value));
  }
  const Py_ssize_t size = PySequence_Size(value.ptr());
  if (size < 0) throw nb::python_error();
  std::vector<int64_t> numbers;
  for (Py_ssize_t i = 0; i < size; ++i) {
    const nb::object item = nb::steal(PySequence_GetItem(value.ptr(), i));
    if (!item.is_valid()) throw nb::python_error();
    const ArgName item_name{name.function, name.name, int(i)};
    numbers.push_back(int_argument(item, item_name, low, std::numeric_limits<int64_t>::max()));
  }
  return numbers;
}

nb::bytes bytes_argument(nb::handle value, ArgName name) {
  if (PyBytes_Check(value.ptr())) return nb::borrow<nb::bytes>(value);
  // Through a memoryview, which only takes what has bytes: bytes() would take ints and lists, too.
  const nb::object view = nb::steal(PyMemoryView_FromObject(value.ptr()));
  PyErr_Clear();
  if (!view.is_valid()) raise_type_error(name.text() + " must be bytes, not " + type_text(value));
  PyObject* copied = PyBytes_FromObject(view.ptr());
  if (!copied) throw nb::python_error();
  return nb::steal<nb::bytes>(copied);
}

AttrsArgument::AttrsArgument(nb::handle schema_id, nb::handle attrs_bytes, const char* function) {
  constexpr int64_t kMost = std::numeric_limits<uint32_t>::max();
  blob_.schema_id = uint32_t(int_argument(schema_id, {function, "schema_id"}, 0, kMost));
  owner_ = bytes_argument(attrs_bytes, {function, "attrs_bytes"});
  const size_t size = owner_.size();
  if (size > size_t(kMost)) raise(Status::invalid(ArgName{function, "attrs_bytes"}.text() + " is too long"));
  blob_.bytes = uint32_t(size);
  blob_.data = size ? owner_.c_str() : nullptr;
}

}  // namespace npu::bindings
