#include "bindings/arguments.h"

#include <limits>
#include <utility>

namespace npu::bindings {
namespace {

constexpr int64_t kMostOf32Bits = std::numeric_limits<uint32_t>::max();

std::string type_text(nb::handle value) { return nb::type_name(value.type()).c_str(); }

[[noreturn]] void raise_out_of_range(nb::handle value, ArgName name, int64_t low, int64_t high) {
  const nb::str text(value);
  raise(Status::invalid(name.text() + " is " + text.c_str() + "; " + std::to_string(low) + " to " +
                        std::to_string(high) + " are possible"));
}

// The Python exception that python_failure() took. It stays until the next failure of its thread.
struct Pending {
  PyObject* exception = nullptr;
  std::string text;
};
thread_local Pending pending;

const char* class_of(StatusCode code) {
  switch (code) {
    case StatusCode::InvalidArgument: return "InvalidArgumentError";
    case StatusCode::NotImplemented: return "NotSupportedError";
    case StatusCode::DeviceError: return "DeviceError";
    case StatusCode::Unavailable: return "UnavailableError";
    default: return "InternalError";
  }
}

// The exception that is set, as one object, with its traceback.
nb::object take_exception() {
  PyObject *type = nullptr, *value = nullptr, *traceback = nullptr;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  if (traceback) PyException_SetTraceback(value, traceback);
  Py_XDECREF(type);
  Py_XDECREF(traceback);
  return nb::steal(value);
}

std::string text_of_exception(nb::handle exception) {
  std::string text = nb::type_name(exception.type()).c_str();
  const nb::object message = nb::steal(PyObject_Str(exception.ptr()));
  if (!message.is_valid()) {
    PyErr_Clear();
    return text;
  }
  const nb::object bytes = nb::steal(PyUnicode_AsEncodedString(message.ptr(), "utf-8", "backslashreplace"));
  if (!bytes.is_valid()) throw nb::python_error();
  const std::string all = PyBytes_AsString(bytes.ptr());
  return all.empty() ? text : text + ": " + all.substr(0, all.find('\n'));
}

bool is_pending(const Status& status) {
  return pending.exception && status.code() == StatusCode::Internal && status.message().ends_with(pending.text);
}

}  // namespace

std::string ArgName::text() const {
  const std::string all = std::string(function) + ": " + name;
  return index < 0 ? all : all + "[" + std::to_string(index) + "]";
}

int64_t int_argument_of_any(nb::handle value, ArgName name, int64_t low, int64_t high) {
  nb::object number = nb::borrow(value);
  if (PyBool_Check(value.ptr()) || (!PyLong_Check(value.ptr()) && !PyIndex_Check(value.ptr()))) {
    raise_other_type(name, "an int", value);
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
  if (!PyUnicode_Check(value.ptr())) raise_other_type(name, "a str", value);
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
    raise_other_type(name, "a list or tuple of ints", value);
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
  if (!view.is_valid()) raise_other_type(name, "bytes", value);
  PyObject* copied = PyBytes_FromObject(view.ptr());
  if (!copied) throw nb::python_error();
  return nb::steal<nb::bytes>(copied);
}

void AttrsArgument::read_schema(nb::handle schema_id, const char* function) {
  blob_.schema_id = uint32_t(int_argument(schema_id, {function, "schema_id"}, 0, kMostOf32Bits));
}

void AttrsArgument::read_bytes(nb::handle attrs_bytes, const char* function) {
  const nb::bytes bytes = bytes_argument(attrs_bytes, {function, "attrs_bytes"});
  const size_t size = bytes.size();
  if (size > size_t(kMostOf32Bits)) raise(Status::invalid(ArgName{function, "attrs_bytes"}.text() + " is too long"));
  blob_.bytes = uint32_t(size);
  blob_.data = size ? bytes.c_str() : nullptr;
  owner_ = bytes;
}

nb::object text_object(const std::string& text) {
  return nb::steal(PyUnicode_DecodeUTF8(text.data(), Py_ssize_t(text.size()), "replace"));
}

void raise(const Status& status) {
  if (is_pending(status)) {
    PyObject* exception = std::exchange(pending.exception, nullptr);
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception)), exception);
    Py_DECREF(exception);
    throw nb::python_error();
  }
  const nb::object type = nb::module_::import_("npu_cuda.errors").attr(class_of(status.code()));
  PyErr_SetObject(type.ptr(), text_object(status.message()).ptr());
  throw nb::python_error();
}

void raise_other_type(ArgName name, const char* wanted, nb::handle value, const char* more) {
  raise_type_error(name.text() + " must be " + wanted + ", not " + type_text(value) + more);
}

void raise_type_error(const std::string& message) {
  PyErr_SetString(PyExc_TypeError, message.c_str());
  throw nb::python_error();
}

Status python_failure() {
  const nb::object exception = take_exception();
  pending.text = text_of_exception(exception);
  Py_XDECREF(std::exchange(pending.exception, nb::object(exception).release().ptr()));
  return Status::internal(pending.text);
}

std::string take_exception_text(nb::object* cause) {
  if (!PyErr_ExceptionMatches(PyExc_Exception) || PyErr_ExceptionMatches(PyExc_MemoryError)) throw nb::python_error();
  *cause = take_exception();
  return text_of_exception(*cause);
}

void raise_from(const std::string& message, nb::handle cause) {
  const nb::object type = nb::module_::import_("npu_cuda.errors").attr("InvalidArgumentError");
  const nb::object error = type(text_object(message));
  PyException_SetCause(error.ptr(), nb::borrow(cause).release().ptr());
  PyErr_SetObject(type.ptr(), error.ptr());
  throw nb::python_error();
}

}  // namespace npu::bindings
