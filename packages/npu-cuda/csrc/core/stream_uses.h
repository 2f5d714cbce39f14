// StreamUses: marks after the last launches that use some memory, one for each stream.
#pragma once

#include <algorithm>
#include <vector>

#include "core/device.h"

namespace npu {

class StreamUses {
 public:
  bool empty() const { return marks_.empty(); }

  // Marks what has been launched on a stream, for this memory. What is captured uses it in the graph, and not
  // now.
  Status note(Device* device, void* stream) {
    std::shared_ptr<Event> event = mark_of(stream);
    NPU_TRY(device->mark(stream, &event));
    return note(stream, event), Status();
  }
  // Marks what has been launched on a stream by a mark that was made for other memory.
  void note(void* stream, const std::shared_ptr<Event>& event) {
    if (!event) return;
    std::erase_if(marks_, [&](const Mark& mark) { return mark.stream == stream; });
    marks_.push_back({stream, event});
  }
  // Null where there is none.
  std::shared_ptr<Event> mark_of(void* stream) const {
    for (const Mark& mark : marks_) {
      if (mark.stream == stream) return mark.event;
    }
    return nullptr;
  }

  // Waits in the calling thread.
  Status wait() const {
    for (const Mark& mark : marks_) NPU_TRY(mark.event->wait());
    return {};
  }
  // Lets a stream wait, which does not capture.
  Status delay(void* stream) const {
    for (const Mark& mark : marks_) {
      if (mark.stream != stream) NPU_TRY(mark.event->delay(stream));
    }
    return {};
  }
  // Whether all is done; a failure of the device ends everything.
  bool have_passed() const {
    const auto has_passed = [](const Mark& mark) {
      bool is_done = false;
      return !mark.event->has_passed(&is_done).ok() || is_done;
    };
    return std::all_of(marks_.begin(), marks_.end(), has_passed);
  }

 private:
  struct Mark {
    void* stream;
    std::shared_ptr<Event> event;
  };
  std::vector<Mark> marks_;
};

}  // namespace npu
