// Event: a point in the work of a stream of a device, to wait for.
#pragma once

#include "core/status.h"

namespace npu {

class Event {
 public:
  virtual ~Event() = default;
  virtual Status has_passed(bool* out) = 0;
  virtual Status wait() = 0;  // of the calling thread
  // What is launched on the stream from now on waits for it. Not for streams that capture.
  virtual Status delay(void* stream) = 0;
};

}  // namespace npu
