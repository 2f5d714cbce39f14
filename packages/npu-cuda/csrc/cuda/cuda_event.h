// Events of CUDA, without time stamps.
#pragma once

#include <memory>

#include "core/event.h"
#include "cuda/cuda_handles.h"

namespace npu {

class CudaEvent final : public Event {
 public:
  // Records it after what was launched on the stream; makes one where `event` is null.
  static Status record(cudaStream_t stream, std::shared_ptr<Event>* event);
  explicit CudaEvent(EventOwner event) : event_(std::move(event)) {}

  Status has_passed(bool* out) override;
  Status wait() override;
  Status delay(void* stream) override;

 private:
  EventOwner event_;
};

}  // namespace npu
