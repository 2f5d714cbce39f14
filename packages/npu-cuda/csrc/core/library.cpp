#include "core/library.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <dlfcn.h>
#include <filesystem>

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

// The structs of version 1.0, which are part of every later one. Only what follows may be missing.
constexpr uint32_t kFirstOpBytes = offsetof(npu_op, attr_fields) + sizeof(void*);
constexpr uint32_t kFirstKernelBytes = offsetof(npu_kernel, cost) + sizeof(void*);
constexpr uint32_t kFirstLibraryBytes = offsetof(npu_kernel_library, num_kernels) + sizeof(uint32_t);
constexpr uint32_t kMaxStructBytes = 1 << 16;
constexpr uint32_t kMaxCount = 1 << 16;

Status check_struct_size(uint32_t size, uint32_t first, const std::string& what) {
  if (size >= first && size <= kMaxStructBytes && size % alignof(void*) == 0) return {};
  return Status::invalid("the struct_size of " + what + " is " + std::to_string(size) + ", not a multiple of " +
                         std::to_string(alignof(void*)) + " of at least " + std::to_string(first) +
                         ": set it to sizeof");
}

// An array of structs of the library's own size. What its structs lack is zero, what they have beyond ours is left out.
template <class Struct>
Status read_array(const Struct* items, uint32_t count, uint32_t first_bytes, const std::string& what,
                  std::vector<Struct>* out) {
  if (count == 0) return {};
  if (count > kMaxCount) return Status::invalid("it has " + std::to_string(count) + " " + what + "s");
  if (!items) return Status::invalid("its " + what + "s are NULL, and there are " + std::to_string(count));
  const auto* place = reinterpret_cast<const char*>(items);
  const uint32_t stride = items->struct_size;
  for (uint32_t i = 0; i < count; ++i, place += stride) {
    uint32_t size = 0;
    std::memcpy(&size, place, sizeof size);
    NPU_TRY(check_struct_size(size, first_bytes, what + " " + std::to_string(i)));
    if (size != stride) {
      return Status::invalid("the struct_size of " + what + " " + std::to_string(i) + " is " + std::to_string(size) +
                             ", that of " + what + " 0 is " + std::to_string(stride));
    }
    Struct item{};
    std::memcpy(&item, place, std::min<size_t>(size, sizeof(Struct)));
    out->push_back(item);
  }
  return {};
}

Status check_version(const npu_kernel_library& library) {
  if (library.abi_major == NPU_ABI_MAJOR && library.abi_minor <= NPU_ABI_MINOR) return {};
  const auto text = [](int major, int minor) { return std::to_string(major) + "." + std::to_string(minor); };
  return Status::invalid("it is built for version " + text(library.abi_major, library.abi_minor) +
                         " of npu_cuda/kernel.h, this npu-cuda has version " + text(NPU_ABI_MAJOR, NPU_ABI_MINOR) +
                         (library.abi_major == NPU_ABI_MAJOR
                              ? ": install a newer npu-cuda"
                              : ": build the library with the header in npu_cuda.get_include()"));
}

struct Offer {
  std::vector<OpInfo> ops;
  std::vector<KernelPtr> kernels;
};

Status read_ops(const npu_kernel_library& library, const std::string& origin, Offer* offer, LibraryInfo* info) {
  std::vector<npu_op> ops;
  NPU_TRY(read_array(library.ops, library.num_ops, kFirstOpBytes, "op", &ops));
  for (size_t i = 0; i < ops.size(); ++i) {
    std::string name;
    NPU_TRY(read_name(ops[i].name, "the name of op " + std::to_string(i), &name));
    NPU_TRY(read_op(ops[i], name, origin, &offer->ops.emplace_back()).at("op " + name));
    info->ops.push_back(std::move(name));
  }
  return {};
}

Status find_kind(const std::string& op, const Offer& offer, OpKind* out) {
  for (const OpInfo& own : offer.ops) {
    if (own.name == op) return *out = own.kind, Status();
  }
  const OpInfo* known = RegistryReader()->find_op(op);
  if (known) return *out = known->kind, Status();
  return Status::invalid("its op " + op + " is neither one of npu_cuda.ops() nor one of this library's own");
}

Status read_kernels(const npu_kernel_library& library, const std::string& origin, Offer* offer,
                    LibraryInfo* info) {
  std::vector<npu_kernel> kernels;
  NPU_TRY(read_array(library.kernels, library.num_kernels, kFirstKernelBytes, "kernel", &kernels));
  for (size_t i = 0; i < kernels.size(); ++i) {
    std::string id, op;
    OpKind kind{};
    NPU_TRY(read_name(kernels[i].kernel_id, "the kernel_id of kernel " + std::to_string(i), &id));
    NPU_TRY(read_name(kernels[i].op, "the op of the kernel " + id, &op));
    NPU_TRY(find_kind(op, *offer, &kind).at("kernel " + id));
    NPU_TRY(read_kernel(kernels[i], id, kind, origin, &offer->kernels.emplace_back()).at("kernel " + id));
    info->kernels.push_back(std::move(id));
  }
  return {};
}

Status read_library_name(const npu_kernel_library& library, std::string* out) {
  NPU_TRY(check_version(library));  // before all else: the version determines the layout of the rest
  NPU_TRY(check_struct_size(library.struct_size, kFirstLibraryBytes, "the library"));
  return read_name(library.name, "its name", out);
}

// `info` comes with path and name, and gets the rest.
Status add_library(const npu_kernel_library& library, LibraryInfo* info) {
  const std::string origin = info->name + " (" + info->path + ")";
  Offer offer;
  NPU_TRY(read_ops(library, origin, &offer, info));
  NPU_TRY(read_kernels(library, origin, &offer, info));
  if (offer.ops.empty() && offer.kernels.empty()) return Status::invalid("it has neither ops nor kernels");
  return KernelRegistry::instance().add(std::move(offer.ops), offer.kernels);
}

Status load(const std::string& path, LibraryInfo* info) {
  NPU_TRY(canonical_path(path, &info->path));
  const std::lock_guard lock(loaded().guard);
  NPU_TRY(check_new(loaded().libraries, info->path, ""));
  const npu_kernel_library* library = nullptr;
  NPU_TRY(open_library(info->path, &library));
  NPU_TRY(read_library_name(*library, &info->name));
  NPU_TRY(check_new(loaded().libraries, info->path, info->name));
  NPU_TRY(add_library(*library, info));
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
