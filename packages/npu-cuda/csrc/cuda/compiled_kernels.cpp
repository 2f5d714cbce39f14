#include "cuda/compiled_kernels.h"

#include <cstdlib>
#include <cuda_runtime_api.h>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <unistd.h>

#include "cuda/cuda_handles.h"
#include "cuda/nvrtc.h"

namespace npu {
namespace {

// FNV-1a
uint64_t hash(const std::string& content) {
  uint64_t value = 0xcbf29ce484222325;
  for (const char byte : content) value = (value ^ static_cast<uint8_t>(byte)) * 0x100000001b3;
  return value;
}

std::string hex(uint64_t value) {
  char text[17];
  std::snprintf(text, sizeof(text), "%016llx", static_cast<unsigned long long>(value));
  return text;
}

// A file is what it was made from, the cubin, and the hash of both. One that is not whole, or was made from something else,
// is as if it were not there.
struct CacheFile {
  std::string key;
  std::filesystem::path path;

  explicit CacheFile(std::string made_from) : key(std::move(made_from)) {
    const std::string folder = compiled_kernel_folder();
    if (!folder.empty()) path = std::filesystem::path(folder) / (hex(hash(key)) + ".cubin");
  }

  bool read(std::string* cubin) const {
    if (path.empty()) return false;
    std::ifstream file(path, std::ios::binary);
    const std::string content{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    if (content.size() < key.size() + 16 || content.compare(0, key.size(), key) != 0) return false;
    const std::string body = content.substr(0, content.size() - 16);
    if (content.substr(body.size()) != hex(hash(body))) return false;
    return *cubin = body.substr(key.size()), true;
  }

  // It appears when it is whole. Where it cannot be written, the next process compiles again.
  void write(const std::string& cubin) const {
    if (path.empty()) return;
    std::error_code error;
    std::filesystem::create_directories(path.parent_path(), error);
    const std::string body = key + cubin, made = path.string() + "." + std::to_string(getpid());
    const bool is_whole = bool(std::ofstream(made, std::ios::binary) << body << hex(hash(body)) << std::flush);
    if (is_whole) std::filesystem::rename(made, path, error);
    if (!is_whole || error) std::filesystem::remove(made, error);
  }
};

Status cubin_of(const std::string& text, int capability, std::string* cubin) {
  NPU_TRY(can_compile_kernels());
  std::string absence;
  const Nvrtc* compiler = Nvrtc::find(&absence);
  const CacheFile file("npu-cuda kernel 1, sm_" + std::to_string(capability) + ", NVRTC " + compiler->version() + "\n" +
                       text + '\0');
  if (file.read(cubin)) return {};
  NPU_TRY(compiler->compile(text, capability, cubin));
  file.write(*cubin);
  return {};
}

#if CUDART_VERSION >= 12080
Status load(const std::string& cubin, const char* name, const void** kernel) {
  cudaLibrary_t library = nullptr;
  NPU_TRY(cuda_check(cudaLibraryLoadData(&library, cubin.data(), nullptr, nullptr, 0, nullptr, nullptr, 0),
                     "cudaLibraryLoadData"));
  cudaKernel_t made = nullptr;
  NPU_TRY(cuda_check(cudaLibraryGetKernel(&made, library, name), "cudaLibraryGetKernel"));
  return *kernel = made, Status();
}
#else
Status load(const std::string&, const char*, const void**) { return Status::internal("no compiler is found before CUDA 12.8"); }
#endif

std::string home_cache() {
  if (const char* folder = std::getenv("XDG_CACHE_HOME"); folder && folder[0] == '/') return folder;
  const char* home = std::getenv("HOME");
  return home && home[0] ? std::string(home) + "/.cache" : "";
}

}  // namespace

std::string compiled_kernel_folder() {
  if (const char* folder = std::getenv("NPU_CUDA_CACHE"); folder && folder[0]) {
    return std::string(folder) == "off" ? "" : folder;
  }
  const std::string folder = home_cache();
  return folder.empty() ? "" : folder + "/npu-cuda";
}

Status can_compile_kernels() {
  std::string absence;
  return Nvrtc::find(&absence) ? Status() : Status::not_implemented(std::move(absence));
}

Status compiled_kernel(const std::string& text, const char* name, int capability, const void** kernel) {
  static std::mutex mutex;
  static auto* loaded = new std::map<std::pair<int, std::string>, const void*>();
  const std::lock_guard lock(mutex);
  const void*& known = (*loaded)[{capability, text}];
  const RelaxedCapture relaxed;
  if (!known) {
    std::string cubin;
    NPU_TRY(cubin_of(text, capability, &cubin));
    NPU_TRY(load(cubin, name, &known));
  }
  // A device loads it when it is first asked for there: not in a capture.
  cudaFuncAttributes attributes;
  NPU_TRY(cuda_check(cudaFuncGetAttributes(&attributes, known), "cudaFuncGetAttributes"));
  return *kernel = known, Status();
}

}  // namespace npu
