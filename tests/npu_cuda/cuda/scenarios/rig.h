// What the scenarios share: expectations that throw, buffers of floats, kernels that behave and kernels that do not,
// and ops put together from them. The device is the emulated one, made of the sources that CUDA gets.
#pragma once

#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "cuda/cuda_device.h"
#include "cuda/cuda_recording.h"

namespace npu::scenarios {

void expect(bool is_true, const std::string& what);
void expect_ok(const Status& status);
// A failure of this code whose message contains the fragment.
void expect_failure(const Status& status, StatusCode code, const std::string& fragment);

CudaDevice& device();

using Floats = std::vector<float>;
inline constexpr int kCount = 40;

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

// x is 1, y is 0.
struct Pair {
  Buffer x, y;
  Pair() {
    expect_ok(x.fill(1));
    expect_ok(y.fill(0));
  }
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
Status launch(const Op& op, void* stream);
Status record_into(Recording* recording, const std::vector<Op>& ops);
Status record(const std::vector<Op>& ops, bool is_dag, std::unique_ptr<Executable>* out,
              CaptureMode mode = CaptureMode::ThreadLocal);

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

using Scenarios = std::map<std::string, std::function<void()>>;
Scenarios capture_scenarios();
Scenarios dag_scenarios();
Scenarios device_scenarios();
Scenarios dispatch_scenarios();
Scenarios fault_scenarios();
Scenarios refusal_scenarios();
Scenarios thread_scenarios();
Scenarios update_scenarios();

}  // namespace npu::scenarios
