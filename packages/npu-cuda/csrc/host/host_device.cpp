#include "host/host_device.h"

#include <cstring>
#include <new>

#include "core/trace.h"

namespace npu {
namespace {

constexpr std::align_val_t kAlignment{256};

}  // namespace

HostDevice& HostDevice::instance() {
  static HostDevice* const device = new HostDevice;  // never destroyed: memory and streams may be freed at exit
  return *device;
}

std::string HostDevice::description() const { return "CPU"; }

Status HostDevice::refuse_in_capture(const std::string& action, bool is_global) {
  if (!may_record_.load(std::memory_order_acquire)) return {};
  const std::lock_guard lock(mutex_);
  for (const auto& entry : captures_) {
    const auto capture = entry.lock();
    if (!capture || !capture->is_open()) continue;
    if (capture->is_mine()) {
      return Status::invalid("host: " + action + " is not possible while this thread captures a graph: do it before " +
                             "the capture or after");
    }
    if (!is_global || capture->mode() != CaptureMode::Global) continue;
    capture->break_by(action + " in another thread, in mode global");
    return Status::invalid("host: " + action + " while another thread captures a graph in mode global, which this breaks");
  }
  return {};
}

Status HostDevice::allocate(uint64_t bytes, void** out) {
  NPU_TRY(refuse_in_capture("allocate(" + std::to_string(bytes) + " bytes)", true));
  return allocate_in_capture(bytes, out);
}

Status HostDevice::allocate_in_capture(uint64_t bytes, void** out) {
  *out = ::operator new(bytes, kAlignment, std::nothrow);
  if (*out) return {};
  return Status::device_error("host: out of memory, allocating " + std::to_string(bytes) + " bytes");
}

void HostDevice::free(void* memory) noexcept { ::operator delete(memory, kAlignment); }

Status HostDevice::copy(void* to, const void* from, uint64_t bytes, Direction, void* stream) {
  std::shared_ptr<HostCapture> capture;
  NPU_TRY(find_stream(stream, &capture));
  if (capture) {
    return Status::invalid("host: a copy of memory is not possible on a stream that captures a graph: call the op Copy");
  }
  if (bytes > 0) std::memmove(to, from, bytes);
  return {};
}

Status HostDevice::create_stream(void** out) {
  const std::lock_guard lock(mutex_);
  *out = new char(0);
  streams_.insert(*out);
  return {};
}

void HostDevice::destroy_stream(void* stream) noexcept {
  const std::lock_guard lock(mutex_);
  if (streams_.erase(stream) > 0) delete static_cast<char*>(stream);
}

Status HostDevice::find_stream(void* stream, std::shared_ptr<HostCapture>* capture) const {
  if (stream == &default_stream_) return {};
  const std::lock_guard lock(mutex_);
  if (streams_.count(stream) > 0) return {};
  for (const auto& entry : captures_) {
    *capture = entry.lock();
    if (*capture && (*capture)->stream() == stream && (*capture)->is_open()) return {};
  }
  capture->reset();
  return Status::invalid("host: there is no such stream (" + std::to_string(reinterpret_cast<uintptr_t>(stream)) +
                         "): use 0, create_stream('host'), or the stream of a capture that has not ended");
}

Status HostDevice::synchronize(void* stream) {
  NPU_TRY(refuse_in_capture("waiting for a stream", false));
  std::shared_ptr<HostCapture> capture;
  NPU_TRY(find_stream(stream, &capture));
  if (!capture) return {};
  return Status::invalid("host: waiting is not possible on a stream that another thread captures");
}

Status HostDevice::is_capturing(void* stream, bool* out) const {
  std::shared_ptr<HostCapture> capture;
  NPU_TRY(find_stream(stream, &capture));
  *out = capture != nullptr;
  return {};
}

Status HostDevice::find_capture(void* stream, uint64_t* number) const {
  std::shared_ptr<HostCapture> capture;
  NPU_TRY(find_stream(stream, &capture));
  *number = capture ? capture->number() : 0;
  return {};
}

Status HostDevice::keep_in_capture(void*, std::shared_ptr<void>) {
  return Status::internal("host: graphs of this device are those of graph_begin, which keep what they need");
}

Status HostDevice::launch(const KernelPtr& kernel, const OpCall& call) {
  if (call.stream == &default_stream_) return traced_launch(*kernel, call);
  std::shared_ptr<HostCapture> capture;
  NPU_TRY(find_stream(call.stream, &capture));
  return capture ? capture->append(kernel, call) : traced_launch(*kernel, call);
}

Status HostDevice::record(CaptureMode mode, bool, std::unique_ptr<Recording>* out) {
  NPU_TRY(refuse_in_capture("a second capture", false));
  auto capture = std::make_shared<HostCapture>(mode);
  const std::lock_guard lock(mutex_);
  std::erase_if(captures_, [](const auto& old) { return old.expired(); });
  captures_.push_back(capture);
  may_record_.store(true, std::memory_order_release);
  *out = std::make_unique<HostRecording>(std::move(capture));
  return {};
}

Status HostDevice::update(Executable*, Recording* recording, std::unique_ptr<Executable>* out) {
  return recording->finish(out);
}

}  // namespace npu
