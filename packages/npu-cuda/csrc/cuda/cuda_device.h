// CudaDevice: a GPU through the CUDA runtime. Every method leaves the device of the calling thread as it was, and
// every failure is a Status that holds the name of the CUDA error; none stays behind in the state of the runtime.
#pragma once

#include <atomic>
#include <string>
#include <vector>

#include "core/device.h"

namespace npu {

class CudaDevice final : public Device {
 public:
  struct Traits {
    int id;
    int compute_capability;   // 90 stands for 9.0
    std::string description;  // "NVIDIA H200, sm_90"
    bool is_only_one;         // there is no other device that a thread could have
  };
  explicit CudaDevice(Traits traits) : traits_(std::move(traits)) {}

  DeviceType type() const override { return DeviceType::Cuda; }
  int id() const override { return traits_.id; }
  std::string name() const override { return "cuda:" + std::to_string(traits_.id); }
  std::string description() const override { return traits_.description; }
  int compute_capability() const override { return traits_.compute_capability; }

  Status allocate(uint64_t bytes, void** out) override;
  void free(void* memory) noexcept override;
  Status copy(void* to, const void* from, uint64_t bytes, Direction direction, void* stream) override;

  void* default_stream() const override;
  Status create_stream(void** out) override;
  void destroy_stream(void* stream) noexcept override;
  Status synchronize(void* stream) override;
  Status is_capturing(void* stream, bool* out) const override;
  Status mark(void* stream, std::shared_ptr<Event>* event) override;
  Status find_capture(void* stream, uint64_t* number) const override;
  Status allocate_in_capture(uint64_t bytes, void** out) override;
  Status keep_in_capture(void* stream, std::shared_ptr<void> needs) override;
  // InvalidArgument where the stream captures: "launching a graph is not possible on a stream that captures".
  Status refuse_capture(void* stream, const char* what);

  Status start() override;
  Status activate(int* before) override;
  void deactivate(int before) noexcept override;
  Status launch(const KernelPtr& kernel, const OpCall& call) override;
  Status record(CaptureMode mode, bool is_dag, std::unique_ptr<Recording>* out) override;
  Status update(Executable* executable, Recording* recording, std::unique_ptr<Executable>* out) override;

 private:
  Traits traits_;
  std::atomic<bool> is_started_{false};
};

// Every GPU that works here and that the build has code for; called once: what it returns lives as long as
// the process. `absence` says in words what does not work, be it all of CUDA or one device. Throws nothing
// and prints nothing.
std::vector<Device*> cuda_devices(const std::string& architectures, std::string* absence);

}  // namespace npu
