// What has no owner in Python any more, while launches on other streams than that of its allocator may still
// use it: an allocator such as that of PyTorch gives freed memory to the next launch on its own stream at
// once. The GIL guards it.
#pragma once

#include <memory>

#include "core/stream_uses.h"

namespace npu::bindings {

// Destroys `what` now, or in a later drop_passed(), when the launches have passed.
template <class What>
void keep_until_passed(const StreamUses& uses, What what);
void keep_shared_until_passed(const StreamUses& uses, std::shared_ptr<void> what);

// Destroys what no launch uses any more.
void drop_passed();
// Destroys what no launch uses any more, then waits for the rest and destroys it: at the end of the interpreter.
void drop_all_kept();

template <class What>
void keep_until_passed(const StreamUses& uses, What what) {
  if (uses.empty()) return;
  keep_shared_until_passed(uses, std::make_shared<What>(std::move(what)));
}

}  // namespace npu::bindings
