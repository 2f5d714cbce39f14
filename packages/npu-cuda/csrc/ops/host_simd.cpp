#include "ops/host_simd.h"

#include <cstdlib>
#include <stdexcept>
#include <string>

namespace npu {

int most_vector_bytes() {
  static const int bytes = [] {
    const char* text = std::getenv("NPU_CUDA_VECTOR_BYTES");
    const std::string given = text ? text : "64";
    if (given != "64" && given != "32" && given != "16") {
      throw std::invalid_argument("NPU_CUDA_VECTOR_BYTES is '" + given + "', not 64, 32 or 16");
    }
    return std::stoi(given);
  }();
  return bytes;
}

int vector_bytes() {
#if defined(__x86_64__)
  if (has_avx2()) return has_avx512() ? 64 : 32;
#endif
  return 16;
}

}  // namespace npu
