// Kernels in the symbol table of a library: their names, and their __shared__ variables. In a
// stripped library, kernels are named by address and static shared memory is not poisoned.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace npu::emulator {

struct SharedVariable {
  void* address;
  size_t bytes;
  std::string symbol;
};

// As in the source: "npu::relu<float>(float const*, float*, long)".
const std::string& kernel_name(const void* kernel);

// All of the library that the kernel is in.
const std::vector<SharedVariable>& shared_variables(const void* kernel);

// Bytes of those declared in the kernel itself, not in functions that it calls.
size_t static_shared_bytes(const void* kernel);

}  // namespace npu::emulator
