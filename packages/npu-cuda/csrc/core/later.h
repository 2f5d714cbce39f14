// What other threads let go where it cannot be destroyed: it waits until some thread calls drop_now().
#pragma once

#include <memory>

namespace npu {

void drop_later(std::unique_ptr<std::shared_ptr<void>> owner) noexcept;
bool has_dropped();
void drop_now();

}  // namespace npu
