// Ranges of items of which each is worth much: parallel_for gives threads multiples of 1024 items.
#pragma once

#include "ops/threads.h"

namespace npu::reduce {

template <class F>
void parallel_items(int64_t total, int64_t least, F f) {
  constexpr int64_t grain = 1024;
  parallel_for(total * grain, least * grain, [&](int64_t begin, int64_t end) {
    f(begin / grain, end / grain);
  });
}

}  // namespace npu::reduce
