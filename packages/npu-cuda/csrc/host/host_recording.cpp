// Recording on the CPU: a list of launches, and a graph that runs them one after the other.
#include "core/trace.h"
#include "host/host_device.h"

namespace npu {
namespace {

// A launch that owns what its call points to.
Launch copy_of(const KernelPtr& kernel, const OpCall& call) {
  Launch launch{kernel, call, {}, {}};
  launch.tensors.assign(call.inputs, call.inputs + call.num_inputs);
  launch.tensors.insert(launch.tensors.end(), call.outputs, call.outputs + call.num_outputs);
  const auto* attrs = static_cast<const char*>(call.attrs.data);
  if (call.attrs.bytes > 0) launch.attrs.assign(attrs, attrs + call.attrs.bytes);
  launch.call.inputs = launch.tensors.data();
  launch.call.outputs = launch.tensors.data() + call.num_inputs;
  launch.call.attrs.data = launch.attrs.data();
  return launch;
}

}  // namespace

bool HostCapture::is_open() const {
  const std::lock_guard lock(mutex_);
  return is_open_;
}

Status HostCapture::state_of_locked() const {
  if (reason_.empty()) return {};
  return Status::invalid("this capture is broken: " + reason_ + "; end or abort it, and begin another one");
}

void HostCapture::break_by(const std::string& reason) {
  const std::lock_guard lock(mutex_);
  if (reason_.empty()) reason_ = reason;
}

Status HostCapture::append(const KernelPtr& kernel, const OpCall& call) {
  const std::lock_guard lock(mutex_);
  if (!is_open_) return Status::invalid("this stream belongs to a capture that has ended");
  NPU_TRY(state_of_locked());
  if (!kernel->is(NPU_KERNEL_CAPTURE_SAFE)) {
    return Status::invalid("kernel '" + kernel->traits().id + "' is not safe in a capture (it may allocate, wait, or " +
                           "touch memory that is not of the call): choose another kernel, or run this op outside of " +
                           "the graph");
  }
  launches_.push_back(copy_of(kernel, call));
  return {};
}

Status HostCapture::state() const {
  const std::lock_guard lock(mutex_);
  return state_of_locked();
}

Status HostCapture::close(std::vector<Launch>* out) {
  const std::lock_guard lock(mutex_);
  is_open_ = false;
  out->swap(launches_);  // the caller drops them without the lock: a kernel may be in Python
  return state_of_locked();
}

HostRecording::~HostRecording() {
  std::vector<Launch> dropped;
  if (Status status = capture_->close(&dropped); !status.ok()) return;  // the call that broke it has reported the error
}

Status HostRecording::finish(std::unique_ptr<Executable>* out) {
  std::vector<Launch> launches;
  NPU_TRY(capture_->close(&launches));
  *out = std::make_unique<HostExecutable>(std::move(launches));
  return {};
}

HostExecutable::HostExecutable(std::vector<Launch> launches) : launches_(std::move(launches)) {
  for (const Launch& launch : launches_) steps_.push_back({launch.kernel.get(), launch.call});
}

void HostExecutable::set_stream(void* stream) {
  if (steps_.empty() || steps_.front().call.stream == stream) return;
  for (Step& step : steps_) step.call.stream = stream;
}

Status HostExecutable::launch(void* stream, int64_t count) {
  set_stream(stream);
  for (int64_t round = 0; round < count; ++round) {
    for (const Step& step : steps_) {
      if (Status status = traced_launch(*step.kernel, step.call); !status.ok()) return failed(std::move(status), step);
    }
  }
  return {};
}

Status HostExecutable::failed(Status status, const Step& step) const {
  return std::move(status).at("launch " + std::to_string(&step - steps_.data()) + " of the graph (" +
                              step.kernel->traits().id + ")");
}

}  // namespace npu
