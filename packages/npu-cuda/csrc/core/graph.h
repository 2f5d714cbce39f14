// Graph: launches that were recorded, to be run again with one call. The memory they work on is fixed; whoever made
// the graph keeps it alive. Made by Program::capture, or from single op calls by begin_capture / end_capture.
#pragma once

#include <cstdint>

#include "core/device.h"

namespace npu {

class Program;
struct OpInfo;

struct GraphNode {
  std::string op;         // the name of the op
  std::string kernel_id;
  std::vector<int> after;  // nodes that must be done before
};

class Graph {
 public:
  Graph(Device* device, std::unique_ptr<Executable> executable, std::vector<GraphNode> nodes, bool is_dag);

  Device* device() const { return device_; }
  const std::vector<GraphNode>& nodes() const { return nodes_; }
  bool is_dag() const { return is_dag_; }

  // Runs it `count` times on a stream (never null). On a stream that is capturing it is refused.
  Status launch(void* stream, int64_t count = 1);
  // Takes the pointers of another program of the same ops and kernels.
  Status update(Program* program);
  std::string dot() const;

 private:
  Device* device_;
  std::unique_ptr<Executable> executable_;
  std::vector<GraphNode> nodes_;
  bool is_dag_;
  CaptureMode mode_ = CaptureMode::ThreadLocal;
};

// Recording of single op calls: one at a time per device. begin_capture returns the stream to give to op calls; calls on
// it are recorded and not run. end_capture makes the graph; where a call broke the capture it says which.
Status begin_capture(Device* device, CaptureMode mode, void** stream);
Status end_capture(Device* device, std::unique_ptr<Graph>* out);
void abort_capture(Device* device) noexcept;
// Dispatch calls it after each launch: where the stream is that of a capture, the capture learns what was recorded. Fails
// where the call broke the capture.
Status after_launch(Device* device, void* stream, const OpInfo& op, const KernelPtr& kernel);

}  // namespace npu
