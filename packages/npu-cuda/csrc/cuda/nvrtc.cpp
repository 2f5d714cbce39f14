#include "cuda/nvrtc.h"

#include <algorithm>
#include <cstdlib>
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <filesystem>
#include <map>
#include <mutex>

#include "core/device.h"

namespace npu {
namespace {

constexpr char kVariable[] = "NPU_NVRTC";

std::vector<std::string>& site_folders() {
  static auto* folders = new std::vector<std::string>();
  return *folders;
}

std::string variable(const char* name) {
  const char* text = std::getenv(name);
  return text ? text : "";
}

#ifdef NPU_EMULATE
// What it compiles to is no code for the emulator.
std::vector<std::string> candidates() { return {}; }
#else
// The drivers that this build needs run what compilers of its version make, and of older ones.
std::vector<std::string> names() {
  std::vector<std::string> all;
  for (int major = CUDART_VERSION / 1000; major >= 12; --major) all.push_back("libnvrtc.so." + std::to_string(major));
  return all;
}

std::vector<std::string> candidates() {
  std::vector<std::filesystem::path> folders;
  std::error_code error;
  for (const std::string& site : site_folders()) {
    for (const auto& package : std::filesystem::directory_iterator(std::filesystem::path(site) / "nvidia", error)) {
      folders.push_back(package.path() / "lib");
    }
  }
  for (const std::string& root : {variable("CUDA_PATH"), variable("CUDA_HOME"), std::string("/usr/local/cuda")}) {
    if (!root.empty()) folders.push_back(std::filesystem::path(root) / "lib64");
  }
  std::vector<std::string> paths;
  for (const std::string& name : names()) {
    for (const auto& folder : folders) {
      if (std::filesystem::exists(folder / name, error)) paths.push_back((folder / name).string());
    }
    paths.push_back(name);
  }
  return paths;
}
#endif

}  // namespace

void Nvrtc::set_site_folders(std::vector<std::string> folders) { site_folders() = std::move(folders); }

const Nvrtc* Nvrtc::find(std::string* absence) {
  struct Found {
    const Nvrtc* compiler = nullptr;
    std::string absence;
  };
  static std::mutex mutex;
  static auto* all = new std::map<std::string, Found>();  // by what the variable says
  const std::lock_guard lock(mutex);
  const auto [place, is_new] = all->try_emplace(variable(kVariable));
  Found& found = place->second;
  if (is_new) found.compiler = load_first(place->first, &found.absence);
  return *absence = found.absence, found.compiler;
}

const Nvrtc* Nvrtc::load_first(const std::string& chosen, std::string* absence) {
  if (CUDART_VERSION < 12080) return *absence = "to compile at run time takes a build with CUDA 12.8 or newer", nullptr;
  if (chosen == "off") return *absence = std::string(kVariable) + " is off", nullptr;
  Status status;
  for (const std::string& path : chosen.empty() ? candidates() : std::vector{chosen}) {
    auto compiler = std::make_unique<Nvrtc>();
    status = compiler->load(path);
    if (!status.ok()) continue;
    *absence = compiler->why_not_here();
    if (absence->empty()) return compiler.release();
  }
  if (!absence->empty()) return nullptr;  // found, but not for the GPUs of this machine
  if (!chosen.empty()) return *absence = std::string(kVariable) + ": " + status.message(), nullptr;
  *absence = "NVRTC is not found: install the package nvidia-cuda-nvrtc, or set " + std::string(kVariable) +
             " to the path of libnvrtc.so";
  return nullptr;
}

Status Nvrtc::load(const std::string& path) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    const char* reason = dlerror();
    return Status::unavailable(reason ? reason : path + " cannot be loaded");
  }
  const auto load_function = [&](const char* name, auto* function) {
    *function = reinterpret_cast<std::remove_pointer_t<decltype(function)>>(dlsym(library, name));
    return *function ? Status() : Status::unavailable(path + " is not NVRTC 11.2 or newer: it has no " + name);
  };
  NPU_TRY(load_function("nvrtcVersion", &functions_.version));
  NPU_TRY(load_function("nvrtcGetErrorString", &functions_.error_text));
  NPU_TRY(load_function("nvrtcGetNumSupportedArchs", &functions_.count_architectures));
  NPU_TRY(load_function("nvrtcGetSupportedArchs", &functions_.architectures));
  NPU_TRY(load_function("nvrtcCreateProgram", &functions_.create));
  NPU_TRY(load_function("nvrtcDestroyProgram", &functions_.destroy));
  NPU_TRY(load_function("nvrtcCompileProgram", &functions_.compile));
  NPU_TRY(load_function("nvrtcGetProgramLogSize", &functions_.log_bytes));
  NPU_TRY(load_function("nvrtcGetProgramLog", &functions_.log));
  NPU_TRY(load_function("nvrtcGetCUBINSize", &functions_.cubin_bytes));
  NPU_TRY(load_function("nvrtcGetCUBIN", &functions_.cubin));
  int major = 0, minor = 0;
  NPU_TRY(check(functions_.version(&major, &minor), "nvrtcVersion"));
  path_ = path;
  version_ = std::to_string(major) + "." + std::to_string(minor);
  // It looks for this by name, which the loader does not find in a wheel unless it is loaded already.
  const auto folder = std::filesystem::path(path).parent_path();
  (void)dlopen((folder / ("libnvrtc-builtins.so." + version_)).c_str(), RTLD_NOW | RTLD_LOCAL);
  return {};
}

// Empty where it knows every GPU of this machine.
std::string Nvrtc::why_not_here() const {
  int count = 0;
  if (functions_.count_architectures(&count) != 0) count = 0;
  std::vector<int> known(static_cast<size_t>(count));
  if (functions_.architectures(known.data()) != 0) known.clear();
  for (const Device* device : devices()) {
    const int needed = device->compute_capability();
    if (needed == 0 || std::find(known.begin(), known.end(), needed) != known.end()) continue;
    return description() + " does not know sm_" + std::to_string(needed) + ", the architecture of " + device->name();
  }
  return "";
}

Status Nvrtc::check(int error, const char* what) const {
  return error == 0 ? Status() : Status::internal(std::string(what) + ": " + functions_.error_text(error));
}

Status Nvrtc::compile(const std::string& text, int capability, std::string* cubin) const {
  Program program = nullptr;
  NPU_TRY(check(functions_.create(&program, text.c_str(), "chain.cu", 0, nullptr, nullptr), "nvrtcCreateProgram"));
  Status status = run(program, capability, cubin);
  (void)functions_.destroy(&program);
  return status;
}

Status Nvrtc::run(Program program, int capability, std::string* cubin) const {
  const std::string architecture = "--gpu-architecture=sm_" + std::to_string(capability);
  const char* const options[] = {architecture.c_str(), "--std=c++17", "--fmad=false"};
  if (const int error = functions_.compile(program, 3, options); error != 0) {
    size_t bytes = 0;
    std::string log;
    if (functions_.log_bytes(program, &bytes) == 0) log.resize(bytes);
    if (bytes == 0 || functions_.log(program, log.data()) != 0) log = functions_.error_text(error);
    log.resize(log.find_last_not_of(std::string("\n\0", 2)) + 1);
    return Status::internal(description() + " does not compile for sm_" + std::to_string(capability) + ":\n" + log);
  }
  size_t bytes = 0;
  NPU_TRY(check(functions_.cubin_bytes(program, &bytes), "nvrtcGetCUBINSize"));
  cubin->resize(bytes);
  return check(functions_.cubin(program, cubin->data()), "nvrtcGetCUBIN");
}

}  // namespace npu
