#include "cuda/cuda_device.h"

#include "core/device.h"
#include "core/later.h"
#include "core/trace.h"
#include "cuda/architectures.h"
#include "cuda/cuda_event.h"
#include "cuda/cuda_handles.h"
#include "cuda/cuda_recording.h"

namespace npu {
namespace {

cudaStream_t stream_of(void* handle) { return static_cast<cudaStream_t>(handle); }

Status refuse_recording(const char* what) {
  if (!this_thread_records()) return {};
  return Status::invalid(std::string(what) + " is not possible while this thread captures a graph");
}

cudaMemcpyKind kind_of(Direction direction) {
  switch (direction) {
    case Direction::ToDevice: return cudaMemcpyHostToDevice;
    case Direction::FromDevice: return cudaMemcpyDeviceToHost;
    case Direction::Within: break;
  }
  return cudaMemcpyDeviceToDevice;
}

static_assert(CUDART_VERSION >= 12040, "npu-cuda needs the headers of CUDA 12.4 or newer");

std::string version_text(int version) {  // 13000 stands for 13.0
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

std::string why_there_is_no_driver() {
  int version = 0;
  if (cudaDriverGetVersion(&version) != cudaSuccess) (void)cudaGetLastError();
  const std::string needed = version_text(CUDART_VERSION);
  if (version == 0) return "this machine has no NVIDIA driver; CUDA " + needed + " needs one";
  return "the NVIDIA driver of this machine knows CUDA " + version_text(version) +
         "; this build needs a driver for CUDA " + needed + " or newer";
}

std::string why_there_is_none(cudaError_t error) {
  const std::string message = cuda_check(error, "cudaGetDeviceCount").message();
  const std::string detail = message.empty() ? "" : " (" + message + ")";
  if (error == cudaErrorInsufficientDriver) return why_there_is_no_driver() + detail;
  if (error == cudaErrorNoDevice || error == cudaSuccess) {
    return "the NVIDIA driver of this machine shows no GPU to this process; nvidia-smi and CUDA_VISIBLE_DEVICES may "
           "say why" + detail;
  }
  if (error == cudaErrorInitializationError) {
    return "CUDA cannot start in this process; it cannot be used after a fork of a process that used it" + detail;
  }
  return "CUDA does not work here" + detail;
}

Status describe(int id, const std::string& architectures, CudaDevice::Traits* out) {
  cudaDeviceProp properties{};
  NPU_TRY(cuda_check(cudaGetDeviceProperties(&properties, id), "cudaGetDeviceProperties"));
  const int capability = properties.major * 10 + properties.minor;
  *out = {id, capability, std::string(properties.name) + ", sm_" + std::to_string(capability), false};
  if (has_code_for(architectures, capability)) return {};
  return Status::unavailable(out->description + ": this build has code for " + architectures +
                             " only; build it with CMAKE_CUDA_ARCHITECTURES=" + std::to_string(capability));
}

}  // namespace

Status CudaDevice::allocate(uint64_t bytes, void** out) {
  *out = nullptr;
  const std::string what = "allocating " + std::to_string(bytes) + " bytes on " + name();
  NPU_TRY(refuse_recording(what.c_str()));
  ActiveDevice active;
  NPU_TRY(active.set(this));
  return cuda_check(cudaMalloc(out, bytes), ("cudaMalloc: " + what).c_str());
}

void CudaDevice::free(void* memory) noexcept {
  if (!memory) return;
  const RelaxedCapture relaxed;
  if (cudaFree(memory) != cudaSuccess) (void)cudaGetLastError();
}

Status CudaDevice::copy(void* to, const void* from, uint64_t bytes, Direction direction, void* stream) {
  if (bytes == 0) return {};
  ActiveDevice active;
  NPU_TRY(active.set(this));
  const bool is_within = direction == Direction::Within;
  if (!is_within) NPU_TRY(refuse_capture(stream, "copying from or to the CPU"));
  NPU_TRY(cuda_check(cudaMemcpyAsync(to, from, bytes, kind_of(direction), stream_of(stream)), "cudaMemcpyAsync"));
  return is_within ? Status() : cuda_check(cudaStreamSynchronize(stream_of(stream)), "cudaStreamSynchronize");
}

void* CudaDevice::default_stream() const { return cudaStreamLegacy; }

Status CudaDevice::create_stream(void** out) {
  ActiveDevice active;
  NPU_TRY(active.set(this));
  cudaStream_t stream = nullptr;
  NPU_TRY(cuda_check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags"));
  return *out = stream, Status();
}

void CudaDevice::destroy_stream(void* stream) noexcept { const StreamOwner owner(stream_of(stream)); }

Status CudaDevice::synchronize(void* stream) {
  NPU_TRY(refuse_recording("waiting for a stream"));
  ActiveDevice active;
  NPU_TRY(active.set(this));
  NPU_TRY(refuse_capture(stream, "waiting"));
  return cuda_check(cudaStreamSynchronize(stream_of(stream)), "cudaStreamSynchronize");
}

Status CudaDevice::is_capturing(void* stream, bool* out) const {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  NPU_TRY(cuda_check(cudaStreamIsCapturing(stream_of(stream), &status), "cudaStreamIsCapturing"));
  *out = status != cudaStreamCaptureStatusNone;
  return {};
}

Status CudaDevice::mark(void* stream, std::shared_ptr<Event>* event) {
  bool captures = false;
  NPU_TRY(is_capturing(stream, &captures));
  if (captures) return event->reset(), Status();
  ActiveDevice active;
  NPU_TRY(active.set(this));
  return CudaEvent::record(stream_of(stream), event);
}

Status CudaDevice::find_capture(void* stream, uint64_t* number) const {
  Capture capture;
  NPU_TRY(describe_capture(stream, &capture));
  return *number = capture.number, Status();
}

Status CudaDevice::allocate_in_capture(uint64_t bytes, void** out) {
  ActiveDevice active;
  NPU_TRY(active.set(this));
  const RelaxedCapture relaxed;
  return cuda_check(cudaMalloc(out, bytes), "cudaMalloc in a capture");
}

Status CudaDevice::keep_in_capture(void* stream, std::shared_ptr<void> needs) {
  Capture capture;
  NPU_TRY(describe_capture(stream, &capture));
  if (!capture.graph) return Status::internal("a stream that captures nothing has no graph to keep anything");
  using Kept = std::shared_ptr<void>;
  auto kept = std::make_unique<Kept>(std::move(needs));
  // CUDA lets go in a thread of its own, where it must not be called.
  const auto let_go = [](void* owner) { drop_later(std::unique_ptr<Kept>(static_cast<Kept*>(owner))); };
  cudaUserObject_t object = nullptr;
  NPU_TRY(cuda_check(cudaUserObjectCreate(&object, kept.get(), let_go, 1, cudaUserObjectNoDestructorSync),
                     "cudaUserObjectCreate"));
  (void)kept.release();
  Status status = cuda_check(cudaGraphRetainUserObject(capture.graph, object, 1, cudaGraphUserObjectMove),
                             "cudaGraphRetainUserObject");
  if (!status.ok()) (void)cuda_check(cudaUserObjectRelease(object, 1), "cudaUserObjectRelease");
  return status;
}

Status CudaDevice::refuse_capture(void* stream, const char* what) {
  bool captures = false;
  NPU_TRY(is_capturing(stream, &captures));
  if (!captures) return {};
  return Status::invalid(std::string(what) + " is not possible on a stream that captures a graph");
}

// CUDA makes the context of a device at its first use.
Status CudaDevice::start() {
  if (is_started_.load(std::memory_order_acquire)) return {};
  ActiveDevice active;
  NPU_TRY(active.set(this));
  const RelaxedCapture relaxed;
  NPU_TRY(cuda_check(cudaFree(nullptr), "cudaFree"));
  is_started_.store(true, std::memory_order_release);
  return {};
}

Status CudaDevice::activate(int* before) {
  *before = id();
  if (traits_.is_only_one) return {};
  NPU_TRY(cuda_check(cudaGetDevice(before), "cudaGetDevice"));
  return *before == id() ? Status() : cuda_check(cudaSetDevice(id()), "cudaSetDevice");
}

void CudaDevice::deactivate(int before) noexcept {
  if (before != id() && cudaSetDevice(before) != cudaSuccess) (void)cudaGetLastError();
}

Status CudaDevice::launch(const KernelPtr& kernel, const OpCall& call) {
  ActiveDevice active;
  NPU_TRY(active.set(this));
  if (!kernel->is(NPU_KERNEL_CAPTURE_SAFE)) {
    NPU_TRY(refuse_capture(call.stream, ("kernel " + kernel->traits().id + " allocates or waits, which").c_str()));
  }
  Status status = traced_launch(*kernel, call);
  if (!status.ok()) (void)cudaGetLastError();
  if (call.stream == cudaStreamLegacy) return status;  // it never captures
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  const cudaError_t error = cudaStreamIsCapturing(stream_of(call.stream), &capture);
  if (error == cudaSuccess && capture == cudaStreamCaptureStatusInvalidated) return broken_capture();
  return status.ok() ? cuda_check(error, "cudaStreamIsCapturing") : std::move(status);
}

Status CudaDevice::record(CaptureMode mode, bool is_dag, std::unique_ptr<Recording>* out) {
  return CudaRecording::begin(this, mode, is_dag, out);
}

Status CudaDevice::update(Executable* executable, Recording* recording, std::unique_ptr<Executable>* out) {
  *out = nullptr;
  GraphOwner graph;
  auto* next = static_cast<CudaRecording*>(recording);
  NPU_TRY(next->end(&graph));
  bool is_done = false;
  NPU_TRY(static_cast<CudaExecutable*>(executable)->update(graph.get(), &is_done));
  return is_done ? Status() : CudaExecutable::make(this, graph.get(), stream_of(next->stream()), out);
}

std::vector<Device*> cuda_devices(const std::string& architectures, std::string* absence) {
  absence->clear();
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess || count == 0) return *absence = why_there_is_none(error), std::vector<Device*>();
  std::vector<Device*> devices;
  for (int id = 0; id < count; ++id) {
    CudaDevice::Traits traits;
    if (const Status status = describe(id, architectures, &traits); !status.ok()) {
      if (!absence->empty()) *absence += "; ";
      *absence += "cuda:" + std::to_string(id) + " does not work: " + status.message();
      continue;
    }
    traits.is_only_one = count == 1;
    devices.push_back(new CudaDevice(std::move(traits)));
  }
  return devices;
}

}  // namespace npu
