// NVRTC, the compiler of CUDA for run time. It is found at run time and never linked: at NPU_NVRTC, in the wheels of NVIDIA
// in site-packages, in the CUDA toolkit, or by the loader. NPU_NVRTC=off is as if there were none.
#pragma once

#include <string>
#include <vector>

#include "core/status.h"

namespace npu {

class Nvrtc {
 public:
  // Looked for once for each value of NPU_NVRTC; null where there is none that knows the GPUs here, with the reason.
  static const Nvrtc* find(std::string* absence);
  // Where the wheels of NVIDIA may be; before the first look.
  static void set_site_folders(std::vector<std::string> folders);

  // "NVRTC 13.0 (/usr/local/cuda/lib64/libnvrtc.so.13)"
  std::string description() const { return "NVRTC " + version_ + " (" + path_ + ")"; }
  const std::string& version() const { return version_; }
  // InternalError with the log of the compiler where it does not compile. `capability`: 90 stands for sm_90.
  Status compile(const std::string& text, int capability, std::string* cubin) const;

 private:
  using Program = void*;
  struct Functions {
    int (*version)(int* major, int* minor);
    const char* (*error_text)(int error);
    int (*count_architectures)(int* count);
    int (*architectures)(int* all);
    int (*create)(Program*, const char* text, const char* name, int, const char* const*, const char* const*);
    int (*destroy)(Program*);
    int (*compile)(Program, int count, const char* const* options);
    int (*log_bytes)(Program, size_t*);
    int (*log)(Program, char*);
    int (*cubin_bytes)(Program, size_t*);
    int (*cubin)(Program, char*);
  };

  static const Nvrtc* load_first(const std::string& chosen, std::string* absence);
  Status load(const std::string& path);
  Status check(int error, const char* what) const;
  Status run(Program program, int capability, std::string* cubin) const;
  std::string why_not_here() const;

  std::string path_, version_;
  Functions functions_{};
};

}  // namespace npu
