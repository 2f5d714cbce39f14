// Kernels from shared libraries that export npu_kernel_library_v1 (npu_cuda/kernel.h). A library stays loaded, even
// if it was refused. All data read is checked: it comes from another compiler and another copy of the header.
#pragma once

#include "core/op_info.h"
#include "core/registry.h"

namespace npu {

struct LibraryInfo {
  std::string path;
  std::string name;
  std::vector<std::string> ops;
  std::vector<std::string> kernels;
};

// Loads a library and adds all it offers to the registry, or nothing: no such file or symbol, another version of the
// interface, a struct that is too small, an id that is taken. Loading one again is refused, too.
Status load_library(const std::string& path, LibraryInfo* out);
std::vector<LibraryInfo> loaded_libraries();

// A name of a library: printable ASCII without spaces, not empty, at most 255 characters. `what` it is, for the error.
Status read_name(const char* text, const std::string& what, std::string* out);

// The op of this name, with a kind of its own.
Status read_op(const npu_op& op, std::string name, std::string origin, OpInfo* out);

// The kernel of this id; `kind` is that of the op it names.
Status read_kernel(const npu_kernel& kernel, std::string id, OpKind kind, std::string origin, KernelPtr* out);

}  // namespace npu
