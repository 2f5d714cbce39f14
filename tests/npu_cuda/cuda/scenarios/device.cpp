// Memory, devices, and why there is none.
#include "cuda/architectures.h"
#include "cuda/cuda_device.h"
#include "core/device.h"
#include "emulator/emulator_control.h"
#include "rig.h"

namespace npu::scenarios {
namespace {

const Scenario described("devices_are_described", [] {
  std::string absence = "old";
  const std::vector<Device*> devices = cuda_devices("", &absence);
  expect(devices.size() == 1 && absence.empty(), "one device, and nothing to say");
  expect(devices[0]->name() == "cuda:0" && devices[0]->id() == 0, "its name");
  expect(devices[0]->type() == DeviceType::Cuda && devices[0]->compute_capability() == 90, "its kind");
  expect(devices[0]->description().ends_with(", sm_90"), devices[0]->description());
  delete devices[0];
});

const Scenario listed("every_device_is_listed", [] {
  npu_emulator_set_devices(3);
  npu_emulator_fail_call("cudaGetDeviceProperties", 2, cudaErrorUnknown);
  std::string absence;
  const std::vector<Device*> devices = cuda_devices("", &absence);
  expect(devices.size() == 2 && devices[1]->name() == "cuda:2", "but for the one that does not work");
  expect(absence.starts_with("cuda:1 does not work: cudaGetDeviceProperties: cudaErrorUnknown"), absence);
  for (Device* device : devices) delete device;
});

const Scenario absent("absence_says_why", [] {
  const std::vector<std::pair<cudaError_t, std::string>> reasons = {
      {cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver (35)"},
      {cudaErrorNoDevice, "shows no GPU to this process"},
      {cudaErrorInitializationError, "after a fork"},
      {cudaErrorUnknown, "CUDA does not work here (cudaGetDeviceCount: cudaErrorUnknown (999)"},
  };
  for (const auto& [error, fragment] : reasons) {
    npu_emulator_fail_call("cudaGetDeviceCount", 1, error);
    std::string absence;
    expect(cuda_devices("", &absence).empty(), "there is no device");
    expect(absence.find(fragment) != std::string::npos, absence + " says " + fragment);
    expect(cudaPeekAtLastError() == cudaSuccess, "no error is left behind");
  }
});

const Scenario other_code("a_device_that_the_build_has_no_code_for_is_none", [] {
  std::string absence;
  expect(cuda_devices("80-real 100-real 100-virtual", &absence).empty(), "it is of 9.0");
  expect(absence == "cuda:0 does not work: Emulated CUDA device, sm_90: this build has code for 80-real 100-real "
                    "100-virtual only; build it with CMAKE_CUDA_ARCHITECTURES=90", absence);
  const std::vector<std::pair<std::string, bool>> builds = {
      {"90-real", true}, {"80-real", false}, {"80-virtual", true}, {"80", true}, {"90a-real", true},
      {"100-virtual", false}, {"80-real 90-virtual", true}, {"native", true}, {"", true}, {"91-real", false}};
  for (const auto& [architectures, has_code] : builds) {
    expect(has_code_for(architectures, 90) == has_code, architectures);
  }
  expect(has_code_for("100f-real", 103) && !has_code_for("100a-real", 103) && !has_code_for("100-real", 120), "newer");
});

const Scenario start("devices_are_started_once_and_in_a_capture_as_well", [] {
  const RecordingPtr global = recording(false, CaptureMode::Global);
  CudaDevice fresh({0, 90, "a device", true});
  npu_emulator_fail_call("cudaFree", 1, cudaErrorUnknown);
  expect_failure(fresh.start(), StatusCode::DeviceError, "cudaFree: cudaErrorUnknown");
  const int64_t before = npu_emulator_calls("cudaFree");
  expect_ok(fresh.start());
  expect_ok(fresh.start());
  expect(npu_emulator_calls("cudaFree") == before + 1, "once");
  finished(global);
});

const Scenario memory("memory_is_aligned_and_said_to_be_missing_where_there_is_none", [] {
  void* memory = &memory;
  npu_emulator_fail_call("cudaMalloc", 1, cudaErrorMemoryAllocation);
  expect_failure(device().allocate(4096, &memory), StatusCode::DeviceError,
                 "cudaMalloc: allocating 4096 bytes on cuda:0: cudaErrorMemoryAllocation (2): out of memory");
  expect(memory == nullptr, "there is no memory");
  expect(cudaPeekAtLastError() == cudaSuccess, "no error is left behind");
  device().free(nullptr);
  for (const uint64_t bytes : {1, 100, 4096}) {
    expect_ok(device().allocate(bytes, &memory));
    expect(reinterpret_cast<uintptr_t>(memory) % 256 == 0, "a multiple of 256");
    device().free(memory);
  }
});

const Scenario copies("copies_are_done_on_return", [] {
  npu_emulator_set_deferred(1);
  const Data data;
  const Stream stream;
  expect_ok(launch({add_one(), &data.x, &data.x}, stream.get()));
  expect_ok(device().copy(data.y.data(), data.x.data(), kBytes, Direction::Within, stream.get()));
  Floats values(kCount, 0);
  expect_ok(device().copy(values.data(), data.y.data(), kBytes, Direction::FromDevice, stream.get()));
  expect(values == Floats(kCount, 2), "after what was launched on the stream before");
  expect_ok(device().copy(nullptr, nullptr, 0, Direction::Within, stream.get()));
});

// The device of the thread is asked for and set only where there may be another one.
const Scenario usual("the_default_stream_is_not_null_and_the_only_device_needs_no_switch", [] {
  expect(device().default_stream() == reinterpret_cast<void*>(1), "cudaStreamLegacy");
  const Data data;
  expect_ok(launch({add_one(), &data.x, &data.x}, device().default_stream()));
  expect_ok(device().synchronize(device().default_stream()));
  expect(holds(data.x, 2), "it runs there");
  expect(npu_emulator_calls("cudaGetDevice") == 0 && npu_emulator_calls("cudaSetDevice") == 0, "no call of either");
});

const Scenario switched("device_of_the_thread_is_put_back", [] {
  npu_emulator_set_devices(2);
  CudaDevice second({1, 90, "emulated", false}), first({0, 90, "emulated", false});
  const auto current = [] {
    int number = -1;
    expect(cudaGetDevice(&number) == cudaSuccess, "there is one");
    return number;
  };
  {
    ActiveDevice active;
    expect_ok(active.set(&second));
    expect(current() == 1, "the second one is that of the thread");
    void* memory = nullptr;
    expect_ok(first.allocate(64, &memory));
    first.free(memory);
    RecordingPtr empty;
    expect_ok(first.record(CaptureMode::ThreadLocal, true, &empty));
    expect_ok(finished(empty)->launch(first.default_stream(), 1));
    expect_ok(first.synchronize(first.default_stream()));
    expect(current() == 1, "it still is");
  }
  expect(current() == 0, "as before");
  npu_emulator_fail_call("cudaSetDevice", 1, cudaErrorInvalidDevice);
  ActiveDevice none;
  expect_failure(none.set(&second), StatusCode::DeviceError, "cudaSetDevice: cudaErrorInvalidDevice (101)");
});

}  // namespace
}  // namespace npu::scenarios
