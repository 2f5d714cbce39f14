// CudaRecording: the capture of a CUDA graph, on a non-blocking stream of its own. Capturing a stream yields
// a chain. For a DAG the dependencies of the stream are set before each op, and read after it: those are the
// leaf nodes of the op. An op that launches nothing leaves its dependencies unchanged, so they apply to
// the ops after it.
//
// It is one capture from begin to finish, not one per op into a graph of ours (cudaStreamBeginCaptureToGraph):
// CUDA destroys the graph of a capture that was invalidated, whoever made it, and what is called between two ops
// would go unnoticed.
#pragma once

#include <atomic>
#include <mutex>
#include <thread>

#include "core/device.h"
#include "cuda/cuda_handles.h"

namespace npu {

class CudaDevice;

// The recordings that a thread began, which may be dropped elsewhere or outlive it.
class ThreadRecordings {
 public:
  std::atomic<int> count{0};

  // A stream whose capture the thread is to end, when it next asks or ends; nobody can where it has ended.
  void abandon(StreamOwner stream);
  void end_abandoned(bool is_over = false) noexcept;

 private:
  std::mutex guard_;
  std::vector<StreamOwner> abandoned_;
  std::atomic<bool> has_abandoned_{false};
  bool is_over_ = false;
};

// Whether this thread is recording, on any device: then it may neither allocate nor wait.
bool this_thread_records();
// What is said of a capture that CUDA has invalidated.
Status broken_capture();

struct Capture {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  unsigned long long number = 0;  // which no other capture has; 0 where the stream captures nothing
  cudaGraph_t graph = nullptr;    // while the capture is active
  const cudaGraphNode_t* leaves = nullptr;  // what the next node will depend on
  const cudaGraphEdgeData* edges = nullptr;
  size_t num_leaves = 0;
};
Status describe_capture(void* stream, Capture* out);

class CudaRecording final : public Recording {
 public:
  static Status begin(CudaDevice* device, CaptureMode mode, bool is_dag, std::unique_ptr<Recording>* out);
  CudaRecording(CudaDevice* device, StreamOwner stream, CaptureMode mode, bool is_dag);
  ~CudaRecording() override;

  void* stream() const override { return stream_.get(); }
  Status begin_op(const std::vector<int>& after) override;
  Status end_op() override;
  Status finish(std::unique_ptr<Executable>* out) override;

  // Ends the capture and gives its graph; finish without making it executable.
  Status end(GraphOwner* out);

 private:
  // Where the next node goes: what it depends on, and how.
  struct Leaves {
    std::vector<cudaGraphNode_t> nodes;
    std::vector<cudaGraphEdgeData> edges;
  };
  Status start();
  Leaves leaves_of(const std::vector<int>& ops) const;
  Status set_dependencies(Leaves leaves);
  Status join();
  void abort() noexcept;
  void forget() noexcept;

  CudaDevice* device_;
  StreamOwner stream_;
  CaptureMode mode_;
  bool is_dag_;
  bool is_in_op_ = false;
  std::vector<Leaves> leaves_;  // of each op
  std::thread::id thread_ = std::this_thread::get_id();
  std::shared_ptr<ThreadRecordings> recordings_;  // of that thread; null once this one has ended
};

class CudaExecutable final : public Executable {
 public:
  // Instantiates a graph, and uploads it through a stream of the device.
  static Status make(CudaDevice* device, cudaGraph_t graph, cudaStream_t stream, std::unique_ptr<Executable>* out);
  CudaExecutable(CudaDevice* device, GraphExecOwner exec) : device_(device), exec_(std::move(exec)) {}

  Status launch(void* stream, int64_t count) override;
  // Takes the parameters of another graph. `is_done` is false, and nothing has changed, where its shape does not
  // allow it. Launches that were made before are not affected.
  Status update(cudaGraph_t graph, bool* is_done);

 private:
  CudaDevice* device_;
  std::mutex guard_;  // CUDA does not allow two threads to use one executable graph at once
  GraphExecOwner exec_;
};

}  // namespace npu
