#include "bindings/errors.h"

#include <utility>

namespace npu::bindings {
namespace {

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
