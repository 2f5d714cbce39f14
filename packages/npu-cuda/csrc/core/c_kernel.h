// The kernels and ops of a shared library as those of this code base. All data read is checked: it comes from
// another compiler and another copy of the header.
#pragma once

#include "core/op_info.h"

namespace npu {

// A name of a library: printable ASCII without spaces, not empty, at most 255 characters. `what` it is, for the error.
Status read_name(const char* text, const std::string& what, std::string* out);

// The op of this name, with a kind of its own.
Status read_op(const npu_op& op, std::string name, std::string origin, OpInfo* out);

// The kernel of this id; `kind` is that of the op it names.
Status read_kernel(const npu_kernel& kernel, std::string id, OpKind kind, std::string origin, KernelPtr* out);

}  // namespace npu
