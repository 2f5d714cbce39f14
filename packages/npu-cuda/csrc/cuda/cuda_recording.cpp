// Recordings of CUDA graphs, and the executables made of them.
#include "cuda/cuda_recording.h"

#include <algorithm>
#include <numeric>

#include "core/device.h"
#include "cuda/cuda_device.h"

namespace npu {
namespace {

// Ends a capture whatever its state is. A graph comes of it only where nothing was wrong with it.
void end_capture(cudaStream_t stream) noexcept {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusActive;
  if (cudaStreamIsCapturing(stream, &status) != cudaSuccess) (void)cudaGetLastError();
  cudaGraph_t graph = nullptr;
  if (status != cudaStreamCaptureStatusNone && cudaStreamEndCapture(stream, &graph) != cudaSuccess) {
    (void)cudaGetLastError();
  }
  const GraphOwner owner(graph);
}

// Ends with its thread.
struct OwnRecordings {
  std::shared_ptr<ThreadRecordings> shared = std::make_shared<ThreadRecordings>();
  ~OwnRecordings() { shared->end_abandoned(true); }
};

ThreadRecordings& recordings_of_this_thread(std::shared_ptr<ThreadRecordings>* out = nullptr) {
  thread_local const OwnRecordings own;
  if (out) *out = own.shared;
  return *own.shared;
}

cudaStreamCaptureMode cuda_mode(CaptureMode mode) {
  switch (mode) {
    case CaptureMode::Global: return cudaStreamCaptureModeGlobal;
    case CaptureMode::Relaxed: return cudaStreamCaptureModeRelaxed;
    case CaptureMode::ThreadLocal: break;
  }
  return cudaStreamCaptureModeThreadLocal;
}

// Kernels of others may allocate in stream order: AutoFreeOnLaunch keeps such a graph launchable a second time,
// and costs nothing where there is no allocation. UseNodePriority, which PyTorch adds, is left out: a graph is
// captured on a stream of its own, whose priority says nothing, and shall run with the priority of the stream it
// is launched on.
constexpr unsigned long long kInstantiateFlags = cudaGraphInstantiateFlagAutoFreeOnLaunch;

// The functions that know the data of edges. Before CUDA 13 their names had versions.
#if CUDART_VERSION >= 13000
constexpr auto get_capture_info = cudaStreamGetCaptureInfo;
constexpr auto update_capture_dependencies = cudaStreamUpdateCaptureDependencies;
#else
constexpr auto get_capture_info = cudaStreamGetCaptureInfo_v3;
constexpr auto update_capture_dependencies = cudaStreamUpdateCaptureDependencies_v2;
#endif

}  // namespace

void ThreadRecordings::abandon(StreamOwner stream) {
  const std::lock_guard lock(guard_);
  if (is_over_) return;
  abandoned_.push_back(std::move(stream));
  has_abandoned_ = true;
}

void ThreadRecordings::end_abandoned(bool is_over) noexcept {
  if (!is_over && !has_abandoned_) return;
  std::vector<StreamOwner> streams;
  {
    const std::lock_guard lock(guard_);
    is_over_ = is_over;
    streams.swap(abandoned_);
    has_abandoned_ = false;
  }
  for (const StreamOwner& stream : streams) end_capture(stream.get());
}

bool this_thread_records() {
  ThreadRecordings& own = recordings_of_this_thread();
  own.end_abandoned();
  return own.count > 0;
}

Status broken_capture() {
  return Status::invalid(
      "cudaErrorStreamCaptureInvalidated (901): something that was called broke the capture. Neither allocate, free "
      "nor wait while a stream captures: not here, in mode global not in any other thread either, and nowhere for "
      "the whole device");
}

Status describe_capture(void* stream, Capture* out) {
  *out = {};
  return cuda_check(get_capture_info(static_cast<cudaStream_t>(stream), &out->status, &out->number, &out->graph,
                                     &out->leaves, &out->edges, &out->num_leaves),
                    "cudaStreamGetCaptureInfo");
}

CudaRecording::CudaRecording(CudaDevice* device, StreamOwner stream, CaptureMode mode, bool is_dag)
    : device_(device), stream_(std::move(stream)), mode_(mode), is_dag_(is_dag) {}

CudaRecording::~CudaRecording() { abort(); }

Status CudaRecording::begin(CudaDevice* device, CaptureMode mode, bool is_dag, std::unique_ptr<Recording>* out) {
  void* stream = nullptr;
  NPU_TRY(device->create_stream(&stream));
  StreamOwner owner(static_cast<cudaStream_t>(stream));
  auto recording = std::make_unique<CudaRecording>(device, std::move(owner), mode, is_dag);
  NPU_TRY(recording->start());
  *out = std::move(recording);
  return {};
}

Status CudaRecording::start() {
  (void)this_thread_records();  // ends what others have left to this thread
  ActiveDevice active;
  NPU_TRY(active.set(device_));
  NPU_TRY(cuda_check(cudaStreamBeginCapture(stream_.get(), cuda_mode(mode_)), "cudaStreamBeginCapture"));
  recordings_of_this_thread(&recordings_);
  ++recordings_->count;
  return {};
}

CudaRecording::Leaves CudaRecording::leaves_of(const std::vector<int>& ops) const {
  Leaves leaves;
  for (const int op : ops) {
    const Leaves& of_op = leaves_[static_cast<size_t>(op)];
    for (size_t i = 0; i < of_op.nodes.size(); ++i) {
      if (std::find(leaves.nodes.begin(), leaves.nodes.end(), of_op.nodes[i]) != leaves.nodes.end()) continue;
      leaves.nodes.push_back(of_op.nodes[i]);
      leaves.edges.push_back(of_op.edges[i]);
    }
  }
  return leaves;
}

Status CudaRecording::set_dependencies(Leaves leaves) {
  return cuda_check(update_capture_dependencies(stream_.get(), leaves.nodes.data(), leaves.edges.data(),
                                                leaves.nodes.size(), cudaStreamSetCaptureDependencies),
                    "cudaStreamUpdateCaptureDependencies");
}

// What an op did on streams that it forked has to be joined at the end, whatever came after the op.
Status CudaRecording::join() {
  std::vector<int> all(leaves_.size());
  std::iota(all.begin(), all.end(), 0);
  return set_dependencies(leaves_of(all));
}

Status CudaRecording::begin_op(const std::vector<int>& after) {
  if (!recordings_ || is_in_op_) return Status::internal("an op begins within another one, or after the recording");
  for (const int op : after) {
    if (op >= 0 && (!is_dag_ || static_cast<size_t>(op) < leaves_.size())) continue;
    return Status::internal("an op is to follow op " + std::to_string(op) + ", which was not recorded before it");
  }
  if (is_dag_) NPU_TRY(set_dependencies(leaves_of(after)));
  is_in_op_ = true;
  return {};
}

Status CudaRecording::end_op() {
  if (is_dag_ && !is_in_op_) return Status::internal("an op ends that did not begin");
  is_in_op_ = false;
  Capture capture;
  NPU_TRY(describe_capture(stream_.get(), &capture));
  if (capture.status != cudaStreamCaptureStatusActive) return broken_capture();
  if (!is_dag_) return {};
  const size_t count = capture.num_leaves;
  Leaves leaves{{capture.leaves, capture.leaves + count}, std::vector<cudaGraphEdgeData>(count)};
  if (capture.edges) std::copy_n(capture.edges, count, leaves.edges.begin());
  leaves_.push_back(std::move(leaves));
  return {};
}

Status CudaRecording::end(GraphOwner* out) {
  if (!recordings_ || is_in_op_) return Status::internal("a recording ends that has ended, or within an op");
  if (mode_ != CaptureMode::Relaxed && thread_ != std::this_thread::get_id()) {
    return Status::invalid("a recording ends on the thread that began it, unless its mode is relaxed");
  }
  if (is_dag_) NPU_TRY(join());
  cudaGraph_t graph = nullptr;
  Status status = cuda_check(cudaStreamEndCapture(stream_.get(), &graph), "cudaStreamEndCapture");
  GraphOwner owner(graph);
  if (!status.ok()) return abort(), std::move(status);
  if (!graph) return abort(), broken_capture();
  forget();
  *out = std::move(owner);
  return {};
}

Status CudaRecording::finish(std::unique_ptr<Executable>* out) {
  GraphOwner graph;
  NPU_TRY(end(&graph));
  return CudaExecutable::make(device_, graph.get(), stream_.get(), out);
}

// Only the thread that began a capture can end it, but for those in mode relaxed.
void CudaRecording::abort() noexcept {
  if (!recordings_) return;
  if (mode_ == CaptureMode::Relaxed || thread_ == std::this_thread::get_id()) end_capture(stream_.get());
  else recordings_->abandon(std::move(stream_));
  forget();
}

void CudaRecording::forget() noexcept {
  --recordings_->count;
  recordings_ = nullptr;
}

Status CudaExecutable::make(CudaDevice* device, cudaGraph_t graph, cudaStream_t stream,
                            std::unique_ptr<Executable>* out) {
  ActiveDevice active;
  NPU_TRY(active.set(device));
  const RelaxedCapture relaxed;
  cudaGraphExec_t exec = nullptr;
  NPU_TRY(cuda_check(cudaGraphInstantiate(&exec, graph, kInstantiateFlags), "cudaGraphInstantiate"));
  GraphExecOwner owner(exec);
  NPU_TRY(cuda_check(cudaGraphUpload(exec, stream), "cudaGraphUpload"));
  *out = std::make_unique<CudaExecutable>(device, std::move(owner));
  return {};
}

Status CudaExecutable::launch(void* stream, int64_t count) {
  ActiveDevice active;
  NPU_TRY(active.set(device_));
  NPU_TRY(device_->refuse_capture(stream, "launching a graph"));
  const std::lock_guard lock(guard_);
  for (int64_t i = 0; i < count; ++i) {
    NPU_TRY(cuda_check(cudaGraphLaunch(exec_.get(), static_cast<cudaStream_t>(stream)), "cudaGraphLaunch"));
  }
  return {};
}

Status CudaExecutable::update(cudaGraph_t graph, bool* is_done) {
  ActiveDevice active;
  NPU_TRY(active.set(device_));
  const RelaxedCapture relaxed;
  const std::lock_guard lock(guard_);
  cudaGraphExecUpdateResultInfo info{};
  const cudaError_t error = cudaGraphExecUpdate(exec_.get(), graph, &info);
  *is_done = error == cudaSuccess;
  Status status = cuda_check(error, "cudaGraphExecUpdate");
  return error == cudaErrorGraphExecUpdateFailure ? Status() : std::move(status);
}

}  // namespace npu
