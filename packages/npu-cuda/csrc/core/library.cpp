#include "core/library.h"

#include <dlfcn.h>

#include <filesystem>

#include "core/c_kernel.h"

namespace npu {
namespace {

struct Loaded {
  std::mutex guard;
  std::vector<LibraryInfo> libraries;
};

Loaded& loaded() {
  static auto* all = new Loaded();
  return *all;
}

Status check_new(const std::vector<LibraryInfo>& libraries, const std::string& path, const std::string& name) {
  for (const LibraryInfo& other : libraries) {
    if (other.path == path) return Status::invalid("it is loaded already");
    if (other.name == name) return Status::invalid("a library called " + name + " is loaded already, from " + other.path);
  }
  return {};
}

Status canonical_path(const std::string& path, std::string* out) {
  std::error_code error;
  const std::filesystem::path file = std::filesystem::canonical(path, error);
  if (error) return Status::invalid("there is no such file: " + error.message());
  if (!std::filesystem::is_regular_file(file, error)) return Status::invalid("it is not a file");
  *out = file.string();
  return {};
}

using Entry = const npu_kernel_library* (*)();

Status open_library(const std::string& path, const npu_kernel_library** out) {
  void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle) {
    const char* reason = dlerror();
    return Status::invalid(std::string("it cannot be loaded: ") + (reason ? reason : "dlopen does not say why"));
  }
  const auto entry = reinterpret_cast<Entry>(dlsym(handle, "npu_kernel_library_v1"));
  if (!entry) {
    return Status::invalid("it does not export npu_kernel_library_v1, as npu_cuda/kernel.h asks for; in C++ that is "
                           "declared within extern \"C\", which including the header does");
  }
  *out = entry();
  if (*out) return {};
  return Status::unavailable("npu_kernel_library_v1 returned NULL: the library cannot be used on this machine");
}

Status load(const std::string& path, LibraryInfo* info) {
  NPU_TRY(canonical_path(path, &info->path));
  const std::lock_guard lock(loaded().guard);
  NPU_TRY(check_new(loaded().libraries, info->path, ""));
  const npu_kernel_library* library = nullptr;
  NPU_TRY(open_library(info->path, &library));
  NPU_TRY(read_library_name(*library, &info->name));
  NPU_TRY(check_new(loaded().libraries, info->path, info->name));
  NPU_TRY(add_library(*library, KernelRegistry::instance(), info));
  loaded().libraries.push_back(*info);
  return {};
}

}  // namespace

Status load_library(const std::string& path, LibraryInfo* out) {
  LibraryInfo info;
  NPU_TRY(load(path, &info).at("the library " + path));
  *out = std::move(info);
  return {};
}

std::vector<LibraryInfo> loaded_libraries() {
  const std::lock_guard lock(loaded().guard);
  return loaded().libraries;
}

}  // namespace npu
