// The device `host`: the CPU. A launch runs at once, in the thread that calls. A stream that records keeps its launches
// instead, copied, and the graph runs them in their order. It follows the rules of CUDA for captures: a thread
// that records neither allocates nor waits nor begins a second recording; a broken recording is reported at its end.
#pragma once

#include <atomic>
#include <mutex>
#include <set>
#include <thread>

#include "core/device.h"

namespace npu {

// What a recording shares with the device, whose calls append launches or break it.
class HostCapture {
 public:
  explicit HostCapture(CaptureMode mode) : mode_(mode) {}

  void* stream() { return this; }
  uint64_t number() const { return number_; }
  CaptureMode mode() const { return mode_; }
  bool is_mine() const { return owner_ == std::this_thread::get_id(); }
  bool is_open() const;

  Status append(const KernelPtr& kernel, const OpCall& call);
  // The reason stays; later calls fail with it.
  void break_by(const std::string& reason);
  // The reason why it is broken, if it is.
  Status state() const;
  // Ends the recording. The launches are of use only where it was not broken.
  Status close(std::vector<Launch>* out);

 private:
  Status state_of_locked() const;

  static inline std::atomic<uint64_t> count_{0};
  const uint64_t number_ = ++count_;
  const CaptureMode mode_;
  const std::thread::id owner_ = std::this_thread::get_id();
  mutable std::mutex mutex_;
  bool is_open_ = true;
  std::string reason_;  // empty: not broken
  std::vector<Launch> launches_;
};

class HostRecording final : public Recording {
 public:
  explicit HostRecording(std::shared_ptr<HostCapture> capture) : capture_(std::move(capture)) {}
  ~HostRecording() override;

  void* stream() const override { return capture_->stream(); }
  // Launches run one after the other, whatever they depend on.
  Status begin_op(const std::vector<int>&) override { return capture_->state(); }
  Status end_op() override { return capture_->state(); }
  Status finish(std::unique_ptr<Executable>* out) override;

 private:
  std::shared_ptr<HostCapture> capture_;
};

class HostExecutable final : public Executable {
 public:
  explicit HostExecutable(std::vector<Launch> launches);
  Status launch(void* stream, int64_t count) override;

 private:
  struct Step {
    const Kernel* kernel;
    OpCall call;
  };
  void set_stream(void* stream);
  Status failed(Status status, const Step& step) const;

  std::vector<Launch> launches_;  // own what the steps point to
  std::vector<Step> steps_;
};

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
  Status find_capture(void* stream, uint64_t* number) const override;
  Status allocate_in_capture(uint64_t bytes, void** out) override;
  Status keep_in_capture(void* stream, std::shared_ptr<void> needs) override;

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
