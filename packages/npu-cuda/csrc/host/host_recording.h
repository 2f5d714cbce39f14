// Recording on the CPU: a list of launches, and a graph that runs them one after the other.
#pragma once

#include <mutex>
#include <thread>

#include "core/device.h"

namespace npu {

// What a recording shares with the device, whose calls append launches or break it.
class HostCapture {
 public:
  HostCapture(CaptureMode mode, bool is_dag) : mode_(mode), is_dag_(is_dag), owner_(std::this_thread::get_id()) {}

  void* stream() { return this; }
  CaptureMode mode() const { return mode_; }
  bool is_mine() const { return owner_ == std::this_thread::get_id(); }
  bool is_open() const;

  Status append(const KernelPtr& kernel, const OpCall& call);
  // The reason stays; later calls fail with it.
  void break_by(const std::string& reason);
  Status set_dependencies(const std::vector<int>& after);
  Status end_op();
  // Ends the recording. The launches are of use only where it was not broken.
  Status close(std::vector<Launch>* out);

 private:
  Status broken() const;

  const CaptureMode mode_;
  const bool is_dag_;
  const std::thread::id owner_;
  mutable std::mutex mutex_;
  bool is_open_ = true;
  std::string reason_;  // empty: not broken
  std::vector<Launch> launches_;
  std::vector<int> op_ends_;  // per op: the number of launches when it ended
  std::vector<int> after_;    // launches that those of this op wait for
};

class HostRecording final : public Recording {
 public:
  explicit HostRecording(std::shared_ptr<HostCapture> capture) : capture_(std::move(capture)) {}
  ~HostRecording() override;

  void* stream() const override { return capture_->stream(); }
  Status begin_op(const std::vector<int>& after) override { return capture_->set_dependencies(after); }
  Status end_op() override { return capture_->end_op(); }
  Status finish(std::unique_ptr<Executable>* out) override;

 private:
  std::shared_ptr<HostCapture> capture_;
};

class HostExecutable final : public Executable {
 public:
  explicit HostExecutable(std::vector<Launch> launches);
  Status launch(void* stream, int64_t count) override;
  const std::vector<Launch>& launches() const { return launches_; }

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

}  // namespace npu
