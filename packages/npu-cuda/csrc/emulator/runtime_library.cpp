// Kernels that are loaded at run time: an image is a shared library of the host, made from the text of a kernel by g++.
#include <dlfcn.h>
#include <elf.h>
#include <sys/mman.h>
#include <unistd.h>

#include <string>

#include "emulator/device_code.h"
#include "emulator/runtime.h"

using namespace npu::emulator;

namespace {

// An image says itself how long it is: its section headers are at its end.
size_t image_bytes(const void* image) {
  const auto* header = static_cast<const Elf64_Ehdr*>(image);
  return header->e_shoff + size_t{header->e_shnum} * header->e_shentsize;
}

void* open_image(const void* image) {
  const int file = memfd_create("npu_emulated_kernel", 0);
  const auto bytes = static_cast<ssize_t>(image_bytes(image));
  const bool is_written = file >= 0 && write(file, image, static_cast<size_t>(bytes)) == bytes;
  const std::string path = "/proc/self/fd/" + std::to_string(file);
  return is_written ? dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL) : nullptr;  // the file stays open: its name is in use
}

}  // namespace

cudaError_t cudaLibraryLoadData(cudaLibrary_t* library, const void* code, cudaJitOption*, void**, unsigned,
                                cudaLibraryOption*, void**, unsigned) {
  return call("cudaLibraryLoadData", [&] {
    if (const cudaError_t error = check_unsafe_call(); error != cudaSuccess) return error;
    void* handle = open_image(code);
    if (handle == nullptr) return cudaErrorInvalidValue;
    using Use = void (*)(const uint3*, const uint3*);
    const auto use = reinterpret_cast<Use>(dlsym(handle, "npu_emulator_use"));
    if (use == nullptr) return cudaErrorInvalidValue;
    use(&threadIdx, &blockIdx);
    *library = static_cast<cudaLibrary_t>(handle);
    return cudaSuccess;
  });
}

cudaError_t cudaLibraryGetKernel(cudaKernel_t* kernel, cudaLibrary_t library, const char* name) {
  return call("cudaLibraryGetKernel", [&] {
    *kernel = reinterpret_cast<cudaKernel_t>(dlsym(library, name));
    return *kernel == nullptr ? cudaErrorSymbolNotFound : cudaSuccess;
  });
}
