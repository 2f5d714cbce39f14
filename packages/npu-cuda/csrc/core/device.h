// Device: memory, streams and the recording of launches, independent of CUDA. There is one object per device of the
// machine, for the life of the process. `host` runs launches at once; a stream of it can be made to record them.
#pragma once

#include <vector>

#include "core/event.h"
#include "core/kernel.h"

namespace npu {

enum class CaptureMode { ThreadLocal, Global, Relaxed };  // who may disturb a capture: as in CUDA
enum class Direction { ToDevice, FromDevice, Within };

// One launch of a graph. The call points to memory that the creator of the graph keeps alive.
struct Launch {
  KernelPtr kernel;
  OpCall call;
  std::vector<TensorDesc> tensors;  // inputs, then outputs: call points here
  std::vector<char> attrs;          // call points here
};

// A recorded graph, ready to run again and again.
class Executable {
 public:
  virtual ~Executable() = default;
  // Runs the graph `count` times in a row, on a stream of its device.
  virtual Status launch(void* stream, int64_t count) = 0;
};

// A recording in progress; aborts in the destructor, and the stream is usable again.
class Recording {
 public:
  virtual ~Recording() = default;
  virtual void* stream() const = 0;
  // Launches recorded between begin_op and end_op depend on the ops `after`, by index; without them each launch
  // follows the one before, and begin_op may be left out. end_op fails with the reason if what was called broke the
  // capture. finish is called once; after it, or after the destructor, the stream is gone.
  virtual Status begin_op(const std::vector<int>& after) = 0;
  virtual Status end_op() = 0;
  virtual Status finish(std::unique_ptr<Executable>* out) = 0;
};

class Device {
 public:
  virtual ~Device() = default;
  virtual DeviceType type() const = 0;
  virtual int id() const = 0;
  virtual std::string name() const = 0;          // "host", "cuda:0"
  virtual std::string description() const = 0;   // "NVIDIA H200, sm_90", for people
  virtual int compute_capability() const { return 0; }

  virtual Status allocate(uint64_t bytes, void** out) = 0;  // 256-byte aligned; refused while this thread captures
  virtual void free(void* memory) noexcept = 0;
  // Ordered on the stream. Done on return where one end is memory of the CPU; that is refused while it captures.
  virtual Status copy(void* to, const void* from, uint64_t bytes, Direction direction, void* stream) = 0;

  virtual void* default_stream() const = 0;  // never null
  virtual Status create_stream(void** out) = 0;
  virtual void destroy_stream(void* stream) noexcept = 0;
  virtual Status synchronize(void* stream) = 0;
  virtual Status is_capturing(void* stream, bool* out) const = 0;
  // Marks what was launched on a stream so far, by this event or, where it is null, by a new one. It stays
  // null where launches are done when they return, and on a stream that captures.
  virtual Status mark(void*, std::shared_ptr<Event>* event) { return event->reset(), Status(); }

  // A number for what a stream captures, which no other capture has; 0 where it captures nothing.
  virtual Status find_capture(void* stream, uint64_t* number) const = 0;
  // Memory for launches that a stream captures: 256-byte aligned, and freed by free().
  virtual Status allocate_in_capture(uint64_t bytes, void** out) = 0;
  // The graph that a stream captures, of whoever, will keep this as long as it can be launched.
  virtual Status keep_in_capture(void* stream, std::shared_ptr<void> needs) = 0;

  // Makes this the device of the calling thread, where there is such a thing: use ActiveDevice. The other methods do so
  // by themselves.
  virtual Status activate(int* before) { return *before = id(), Status(); }
  virtual void deactivate(int) noexcept {}
  // Starts what the device needs before its first use, which a capture may not allow. Once, and harmless in a
  // capture.
  virtual Status start() { return {}; }
  // Launches a kernel that was chosen for this call, or records it.
  virtual Status launch(const KernelPtr& kernel, const OpCall& call) = 0;
  // Starts to record on a stream of its own. `is_dag`: begin_op states dependencies.
  virtual Status record(CaptureMode mode, bool is_dag, std::unique_ptr<Recording>* out) = 0;
  // Ends a recording and lets an executable run it from now on: in place, with `out` null, or through a new one where
  // that cannot be done. A failure leaves the executable as it was.
  virtual Status update(Executable* executable, Recording* recording, std::unique_ptr<Executable>* out) = 0;
};

// All devices that work here, `host` first.
const std::vector<Device*>& devices();
// InvalidArgument with the existing names, or Unavailable with the reason, if there is no such device.
Status find_device(const std::string& name, Device** out);
Status find_device(DeviceType type, int id, Device** out);
// Why there is no cuda device here: not built for it, no driver, no device. Empty if there is one.
std::string cuda_absence();

// Makes a device the current one of the thread until the end of a block, if devices have that notion. For work outside
// of the methods of Device, such as preparing a kernel; these methods do so themselves.
class ActiveDevice {
 public:
  ActiveDevice() = default;
  ActiveDevice(const ActiveDevice&) = delete;
  ActiveDevice& operator=(const ActiveDevice&) = delete;
  ~ActiveDevice() {
    if (device_) device_->deactivate(before_);
  }
  Status set(Device* device) {
    NPU_TRY(device->activate(&before_));
    return device_ = device, Status();
  }

 private:
  Device* device_ = nullptr;
  int before_ = 0;
};

}  // namespace npu
