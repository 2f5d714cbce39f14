#include "core/build_info.h"

#include "build_values.h"

namespace npu {

const BuildInfo& build_info() {
  namespace is = build_values;
  static constexpr BuildInfo info{is::version,      is::mode,          is::requested, is::reason,
                                  is::architectures, is::cuda_version, is::cuda_compiler, is::cudart,
                                  is::compiler,     is::nanobind,      is::build_type, is::sanitizer};
  return info;
}

}  // namespace npu
