// Failures of the core as exceptions of npu_cuda.errors, and Python exceptions passing through the core. All of it
// needs the GIL.
#pragma once

#include <nanobind/nanobind.h>

#include <string>

#include "core/status.h"

namespace npu::bindings {

namespace nb = nanobind;

// Raises the class that stands for the code; or, where the failure is one of python_failure(), what was raised then.
[[noreturn]] void raise(const Status& status);
[[noreturn]] void raise_type_error(const std::string& message);

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
