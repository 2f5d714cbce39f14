#include "rig.h"

#include "core/trace.h"
#include "cuda/launch.h"

// In place of core/trace.cpp, which would bring the registry and every op.
namespace npu {
std::atomic<bool> trace_is_on{false};
Status launch_and_trace(const Kernel& kernel, const OpCall& call) { return kernel.launch(call); }
}  // namespace npu

namespace npu::scenarios {
namespace {

__global__ void scale_and_add(const float* x, float* y, float factor, float term, int n) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) y[i] = x[i] * factor + term;
}

Status launch_one(const float* x, float* y, float factor, float term, void* stream) {
  return npu::launch(scale_and_add, {dim3((kCount + 31) / 32), dim3(32)}, stream, x, y, factor, term, kCount);
}

const float* input_of(const OpCall& call) { return static_cast<const float*>(call.inputs[0].data); }
float* output_of(const OpCall& call) { return static_cast<float*>(call.outputs[0].data); }

Status launch_add_one(const OpCall& call) { return launch_one(input_of(call), output_of(call), 1, 1, call.stream); }

Status launch_double_and_add(const OpCall& call) {
  NPU_TRY(launch_one(input_of(call), output_of(call), 2, 0, call.stream));
  return launch_one(output_of(call), output_of(call), 1, 1, call.stream);
}

Status launch_allocating(const OpCall& call) {
  NPU_TRY(launch_add_one(call));
  void* memory = nullptr;
  if (cudaMalloc(&memory, 64) == cudaSuccess) (void)cudaFree(memory);
  (void)cudaGetLastError();
  return {};
}

KernelPtr kernel(const std::string& id, Status (*launch)(const OpCall& call),
                 uint32_t flags = NPU_KERNEL_CAPTURE_SAFE) {
  KernelTraits traits{OpKind::Copy, id, DeviceType::Cuda};
  traits.flags = flags;
  return make_kernel(traits, {[](const OpCall&) { return Status(); }, launch});
}

}  // namespace

std::map<std::string, void (*)()>& Scenario::all() {
  static std::map<std::string, void (*)()> all;
  return all;
}

void expect(bool is_true, const std::string& what) {
  if (!is_true) throw std::runtime_error("not so: " + what);
}

void expect_ok(const Status& status) {
  if (!status.ok()) throw std::runtime_error(std::string(name_of(status.code())) + ": " + status.message());
}

void expect_failure(const Status& status, StatusCode code, const std::string& fragment) {
  expect(!status.ok(), "it fails with " + fragment);
  const std::string text = std::string(name_of(status.code())) + ": " + status.message();
  expect(status.code() == code, text + " is " + name_of(code));
  expect(status.message().find(fragment) != std::string::npos, text + " says " + fragment);
}

void expect_invalid(const Status& status, const std::string& fragment) {
  expect_failure(status, StatusCode::InvalidArgument, fragment);
}

TensorDesc desc_of(const Buffer& buffer) {
  TensorDesc desc{};
  desc.data = buffer.data();
  desc.numel = desc.shape[0] = kCount;
  desc.strides[0] = desc.rank = 1;
  desc.dtype = kFloat32;
  desc.device_type = NPU_CUDA;
  return desc;
}

CudaDevice& device() {
  static CudaDevice only({0, 90, "emulated", true});
  return only;
}

Status Buffer::fill(float value) {
  if (!data_) {
    void* memory = nullptr;
    NPU_TRY(device().allocate(kBytes, &memory));
    data_ = static_cast<float*>(memory);
  }
  const Floats values(kCount, value);
  return device().copy(data_, values.data(), kBytes, Direction::ToDevice, device().default_stream());
}

Status Buffer::read(Floats* out) const {
  out->assign(kCount, 0);
  return device().copy(out->data(), data_, kBytes, Direction::FromDevice, device().default_stream());
}

bool holds(const Buffer& buffer, float value) {
  Floats values;
  expect_ok(buffer.read(&values));
  return values == Floats(kCount, value);
}

Status Buffers::fill() {
  NPU_TRY(x.fill(1));
  NPU_TRY(y.fill(0));
  return z.fill(0);
}

KernelPtr add_one() { return kernel("add_one", launch_add_one); }
KernelPtr double_and_add() { return kernel("double_and_add", launch_double_and_add); }
KernelPtr nothing() { return kernel("nothing", [](const OpCall&) { return Status(); }); }
KernelPtr allocating() { return kernel("allocating", launch_allocating); }
KernelPtr failing() {
  return kernel("failing", [](const OpCall&) { return Status::invalid("the kernel does not like it"); });
}
KernelPtr unsafe() { return kernel("unsafe", launch_add_one, 0); }

Status launch(const Op& op, void* stream) {
  const TensorDesc input = desc_of(*op.input), output = desc_of(*op.output);
  OpCall call{};
  call.struct_size = sizeof(OpCall);
  call.num_inputs = call.num_outputs = 1;
  call.inputs = &input;
  call.outputs = &output;
  call.stream = stream;
  return device().launch(op.kernel, call).at("op by " + op.kernel->traits().id);
}

Status record_into(Recording* recording, const std::vector<Op>& ops) {
  for (const Op& op : ops) {
    NPU_TRY(recording->begin_op(op.after));
    NPU_TRY(launch(op, recording->stream()));
    NPU_TRY(recording->end_op());
  }
  return {};
}

Status record(const std::vector<Op>& ops, bool is_dag, ExecutablePtr* out, CaptureMode mode) {
  RecordingPtr recording;
  NPU_TRY(device().record(mode, is_dag, &recording));
  NPU_TRY(record_into(recording.get(), ops));
  return recording->finish(out);
}

Status update(Executable* graph, const std::vector<Op>& ops, ExecutablePtr* out, bool is_dag) {
  RecordingPtr recording;
  NPU_TRY(device().record(CaptureMode::ThreadLocal, is_dag, &recording));
  NPU_TRY(record_into(recording.get(), ops));
  return device().update(graph, recording.get(), out);
}

RecordingPtr recording(bool is_dag, CaptureMode mode) {
  RecordingPtr begun;
  expect_ok(device().record(mode, is_dag, &begun));
  return begun;
}

ExecutablePtr finished(const RecordingPtr& recording) {
  ExecutablePtr graph;
  expect_ok(recording->finish(&graph));
  return graph;
}

ExecutablePtr graph_of(const std::vector<Op>& ops, bool is_dag) {
  ExecutablePtr graph;
  expect_ok(record(ops, is_dag, &graph));
  return graph;
}

void run(const ExecutablePtr& graph, int times, void* stream) {
  expect_ok(graph->launch(stream, times));
  expect_ok(device().synchronize(stream));
}

}  // namespace npu::scenarios
