// Python arguments other than tensors: numbers and bytes. Each function raises TypeError or InvalidArgumentError
// with the name of the argument. Then failures of the core as exceptions of npu_cuda.errors, and Python exceptions that
// pass through the core. All of it needs the GIL.
#pragma once

#include <nanobind/nanobind.h>

#include <limits>
#include <string>
#include <vector>

#include "core/kernel.h"
#include "core/status.h"

namespace npu::bindings {

namespace nb = nanobind;

// "op_call: stream_handle", for texts of errors.
struct ArgName {
  const char* function;
  const char* name;
  int index = -1;  // in a list of this name
  std::string text() const;
};

// An int, or what has __index__; bool is refused.
int64_t int_argument_of_any(nb::handle value, ArgName name, int64_t low, int64_t high);
inline int64_t int_argument(nb::handle value, ArgName name, int64_t low, int64_t high) {
  if (PyLong_CheckExact(value.ptr())) [[likely]] {
    int overflow = 0;
    const int64_t number = PyLong_AsLongLongAndOverflow(value.ptr(), &overflow);
    if (!overflow && number >= low && number <= high) [[likely]] return number;
  }
  return int_argument_of_any(value, name, low, high);
}
// A cudaStream_t: those of user space fit into 63 bits.
inline void* stream_argument(nb::handle value, const char* function) {
  return reinterpret_cast<void*>(int_argument(value, {function, "stream_handle"}, 0, std::numeric_limits<int64_t>::max()));
}
inline OpKind kind_argument(nb::handle value, const char* function) {
  return OpKind(int_argument(value, {function, "kind"}, 0, std::numeric_limits<int32_t>::max()));
}
std::string text_argument(nb::handle value, ArgName name);
// Bytes, or what shows its memory as bytes, copied.
nb::bytes bytes_argument(nb::handle value, ArgName name);
std::vector<int64_t> ints_argument(nb::handle value, ArgName name, int64_t low);

// Attributes as the caller packed them, alive as long as this object. A null handle stands for the default.
class AttrsArgument {
 public:
  AttrsArgument(nb::handle schema_id, nb::handle attrs_bytes, const char* function) {
    if (schema_id.is_valid()) read_schema(schema_id, function);
    if (attrs_bytes.is_valid()) read_bytes(attrs_bytes, function);
  }
  const AttrBlob& blob() const { return blob_; }

 private:
  void read_schema(nb::handle schema_id, const char* function);
  void read_bytes(nb::handle attrs_bytes, const char* function);

  nb::object owner_;
  AttrBlob blob_{};
};

// Raises the class that stands for the code; or, where the failure is one of python_failure(), what was raised then.
[[noreturn]] void raise(const Status& status);
[[noreturn]] void raise_type_error(const std::string& message);
// "empty: shape must be a list or tuple of ints, not bytes", and more.
[[noreturn]] void raise_other_type(ArgName name, const char* wanted, nb::handle value, const char* more = "");

inline void check(const Status& status) {
  if (!status.ok()) [[unlikely]] raise(status);
}

// Text of libraries and of the file system, which may be no UTF-8.
nb::object text_object(const std::string& text);

// Takes the Python exception that is set, for code between Python and Python: Internal with its text, from which
// raise() makes the same exception object again, on this thread.
Status python_failure();

// "ValueError: no such thing", one line, of the exception that is set, which it clears. KeyboardInterrupt, MemoryError
// and the like are not failures of a tensor: they are re-raised.
std::string take_exception_text(nb::object* cause);

// Raises InvalidArgumentError with `cause` as its cause.
[[noreturn]] void raise_from(const std::string& message, nb::handle cause);

}  // namespace npu::bindings
