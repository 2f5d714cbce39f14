// Graph: recorded launches, to be replayed with one call. Their memory is fixed; the creator of the graph keeps it
// alive. Created by Program::capture, or from single op calls by begin_capture / end_capture.
#pragma once

#include <cstdint>

#include "core/device.h"
#include "core/in_use.h"

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
  // `needs`: what has to live longer than the executable, but for the tensors.
  struct Parts {
    Device* device;
    std::vector<std::shared_ptr<void>> needs;
    std::unique_ptr<Executable> executable;
    std::vector<GraphNode> nodes;
    bool is_dag;
    CaptureMode mode;
  };
  explicit Graph(Parts parts) : parts_(std::move(parts)) {}

  Device* device() const { return parts_.device; }
  const std::vector<GraphNode>& nodes() const { return parts_.nodes; }
  bool is_dag() const { return parts_.is_dag; }
  const std::vector<std::shared_ptr<void>>& needs() const { return parts_.needs; }

  // Runs it `count` times on a stream (never null). Refused on a stream that is capturing, and while another thread
  // launches or updates this graph.
  Status launch(void* stream, int64_t count = 1);
  // Takes the pointers of another program of the same ops and kernels, or of the same one after other bindings.
  Status update(Program* program);

 private:
  Parts parts_;
  InUse is_running_;
};

// Recording of single op calls: one at a time per device. begin_capture returns the stream to give to op calls;
// calls on it are recorded and not run. end_capture makes the graph; where a call failed it says which.
Status begin_capture(Device* device, CaptureMode mode, void** stream);
Status end_capture(Device* device, std::unique_ptr<Graph>* out);
void abort_capture(Device* device) noexcept;
// The graph that a stream captures, of begin_capture or of somebody else, keeps what its launches need.
Status keep_in_graph(Device* device, void* stream, const std::shared_ptr<void>& needs);
// Launches by the device. If the stream is that of a capture of op calls, the capture learns what was recorded, and
// the graph keeps what the launch `needs` (its state; null for nothing); a launch that fails breaks it.
Status launch_or_record(Device* device, const OpInfo& op, const KernelPtr& kernel, const OpCall& call,
                        const std::shared_ptr<void>& needs);

}  // namespace npu
