// The device `host`: the CPU. A launch runs at once, in the thread that calls. A stream that records keeps its launches
// instead, copied, and the graph runs them in their order. It follows the rules of CUDA for captures: a thread
// that records neither allocates nor waits nor begins a second recording; a broken recording is reported at its end.
#pragma once

#include <atomic>
#include <mutex>
#include <set>

#include "core/device.h"
#include "host/host_recording.h"

namespace npu {

class HostDevice final : public Device {
 public:
  static HostDevice& instance();

  DeviceType type() const override { return DeviceType::Host; }
  int id() const override { return 0; }
  std::string name() const override { return "host"; }
  std::string description() const override;

  Status allocate(uint64_t bytes, void** out) override;
  void free(void* memory) noexcept override;
  Status copy(void* to, const void* from, uint64_t bytes, Direction direction, void* stream) override;

  void* default_stream() const override { return &default_stream_; }
  Status create_stream(void** out) override;
  void destroy_stream(void* stream) noexcept override;
  Status synchronize(void* stream) override;
  Status is_capturing(void* stream, bool* out) const override;

  Status launch(const KernelPtr& kernel, const OpCall& call) override;
  Status record(CaptureMode mode, bool is_dag, std::unique_ptr<Recording>* out) override;
  Status update(Executable* executable, Recording* recording, std::unique_ptr<Executable>* out) override;

 private:
  HostDevice() = default;

  Status find_stream(void* stream, std::shared_ptr<HostCapture>* capture) const;
  // Fails where the calling thread must not do this now, since it records. An action that `is_global` breaks what other
  // threads record in mode global.
  Status refuse_in_capture(const std::string& action, bool is_global);

  mutable char default_stream_ = 0;  // its address is the stream
  mutable std::mutex mutex_;         // of what follows
  std::set<void*> streams_;          // made by create_stream
  std::vector<std::weak_ptr<HostCapture>> captures_;  // those that record
  std::atomic<bool> may_record_{false};               // false: no stream records, and none has to be looked for
};

}  // namespace npu
