// Launches as ranges of NVTX, in builds whose CUDA has its header. It links with nothing: a profiler that is attached
// puts its functions in.
#include "core/trace.h"

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>

namespace npu {

const TraceRanges* nvtx_ranges() {
  static const TraceRanges ranges{[](const char* name) { nvtxRangePushA(name); }, [] { nvtxRangePop(); }};
  return &ranges;
}

}  // namespace npu
#else
namespace npu {

const TraceRanges* nvtx_ranges() { return nullptr; }

}  // namespace npu
#endif
