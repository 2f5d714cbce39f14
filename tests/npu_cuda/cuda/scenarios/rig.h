// What the scenarios share: expectations that throw, buffers of floats, kernels that behave and kernels that do not,
// and ops put together from them. The device is the emulated one, made of the sources that CUDA gets.
#pragma once

#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "cuda/cuda_device.h"
#include "cuda/cuda_recording.h"

namespace npu::scenarios {

// A test by its name; main.cpp runs it.
struct Scenario {
  Scenario(const char* name, void (*run)()) { all()[name] = run; }
  static std::map<std::string, void (*)()>& all();
};

void expect(bool is_true, const std::string& what);
void expect_ok(const Status& status);
// A failure of this code whose message contains the fragment.
void expect_failure(const Status& status, StatusCode code, const std::string& fragment);
void expect_invalid(const Status& status, const std::string& fragment);

CudaDevice& device();

using Floats = std::vector<float>;
inline constexpr int kCount = 40;
inline constexpr uint64_t kBytes = kCount * sizeof(float);

// kCount floats on the device.
class Buffer {
 public:
  Buffer() = default;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer() { device().free(data_); }
  Status fill(float value);
  Status read(Floats* out) const;
  float* data() const { return data_; }

 private:
  float* data_ = nullptr;
};
bool holds(const Buffer& buffer, float value);
TensorDesc desc_of(const Buffer& buffer);

struct Buffers {
  Buffer x, y, z;
  Status fill();  // x with 1, y and z with 0
};
struct Data : Buffers {
  Data() { expect_ok(fill()); }
};

KernelPtr add_one();            // y = x + 1
KernelPtr double_and_add();     // y = 2 x, then y = y + 1: two launches
KernelPtr nothing();            // launches nothing
KernelPtr allocating();         // allocates, and hides that it was refused
KernelPtr failing();            // InvalidArgument "the kernel does not like it"
KernelPtr unsafe();             // add_one that says of itself that it cannot be captured

// A kernel with an input and an output.
struct Op {
  KernelPtr kernel;
  const Buffer* input;
  const Buffer* output;
  std::vector<int> after = {};
};
using RecordingPtr = std::unique_ptr<Recording>;
using ExecutablePtr = std::unique_ptr<Executable>;
inline constexpr CaptureMode kModes[] = {CaptureMode::ThreadLocal, CaptureMode::Global, CaptureMode::Relaxed};

Status launch(const Op& op, void* stream);
Status record_into(Recording* recording, const std::vector<Op>& ops);
Status record(const std::vector<Op>& ops, bool is_dag, ExecutablePtr* out,
              CaptureMode mode = CaptureMode::ThreadLocal);
// Records a dag and updates the graph to it; `out` is null where that was possible.
Status update(Executable* graph, const std::vector<Op>& ops, ExecutablePtr* out, bool is_dag = true);

// The same, of what has to succeed.
RecordingPtr recording(bool is_dag, CaptureMode mode = CaptureMode::ThreadLocal);
ExecutablePtr finished(const RecordingPtr& recording);
ExecutablePtr graph_of(const std::vector<Op>& ops, bool is_dag = true);
// Launches the graph and waits.
void run(const ExecutablePtr& graph, int times = 1, void* stream = device().default_stream());

// A stream for the length of a scope.
class Stream {
 public:
  Stream() { expect_ok(device().create_stream(&handle_)); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  ~Stream() { device().destroy_stream(handle_); }
  void* get() const { return handle_; }

 private:
  void* handle_ = nullptr;
};

}  // namespace npu::scenarios
