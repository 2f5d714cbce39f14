// LaunchRecord: what the launches of a program or graph use, for those who want its memory afterwards.
#pragma once

#include <nanobind/nanobind.h>

#include <vector>

#include "bindings/dlpack.h"
#include "core/stream_uses.h"

namespace npu::bindings {

using Owners = std::vector<nanobind::object>;

class LaunchRecord {
 public:
  // Marks of launches whose memory others may want before they have passed.
  const StreamUses& uses() const { return uses_; }

  // Tensors of a device that launches will use; `source` reports the current stream of who allocated them, or
  // is null.
  void add(const Owners& owners, const DLPackExchangeAPI* source, const Device& device);
  bool needs_mark(const Device& device, void* stream) const {
    return has_home_ && stream != home_ && device.type() != DeviceType::Host;
  }
  // A launch on such a stream was made, and uses tensors of these.
  void note(Device* device, void* stream, const Owners& owners);
  // Launches will use the memory of another program, too.
  void join(const LaunchRecord& other);
  // As it is before the first launch.
  LaunchRecord without_uses() const;

 private:
  void add_home(void* stream);

  // Freed memory goes to the next launch on this stream: launches there need no marks. Null where memory has
  // several.
  void* home_ = nullptr;
  bool has_home_ = false;
  StreamUses uses_;
};

}  // namespace npu::bindings
