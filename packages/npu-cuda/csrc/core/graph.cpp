#include "core/graph.h"

#include <map>
#include <mutex>

#include "core/op_info.h"
#include "core/program.h"

namespace npu {
namespace {

std::string op_by_kernel(const std::string& op, const std::string& kernel_id) { return op + " by " + kernel_id; }

Status in_use() {
  return Status::invalid("this graph is in use, by another thread or by a call from within: it does one thing at a time");
}

Status check_same_ops(const std::vector<GraphNode>& nodes, const std::vector<Program::Op>& ops) {
  if (nodes.size() != ops.size()) {
    return Status::invalid("update: the graph has " + std::to_string(nodes.size()) + " ops, the program has " +
                           std::to_string(ops.size()));
  }
  for (size_t i = 0; i < nodes.size(); ++i) {
    const std::string kernel_id = ops[i].kernel ? ops[i].kernel->traits().id : "no kernel yet";
    if (nodes[i].op == ops[i].info->name && nodes[i].kernel_id == kernel_id) continue;
    return Status::invalid("update: op " + std::to_string(i) + " of the graph is " +
                           op_by_kernel(nodes[i].op, nodes[i].kernel_id) + ", of the program it is " +
                           op_by_kernel(ops[i].info->name, kernel_id));
  }
  return {};
}

struct Session {
  std::unique_ptr<Recording> recording;
  Graph::Parts parts;
  Status failure;  // says at which call, and how
  bool is_over = false;
};

using SessionPtr = std::shared_ptr<Session>;

std::mutex sessions_guard;
std::atomic<int> num_open{0};  // launches look no further where it is 0

std::map<Device*, SessionPtr>& sessions() {
  static auto* all = new std::map<Device*, SessionPtr>();  // outlives every user
  return *all;
}

Status take_session(Device* device, SessionPtr* out) {
  const std::lock_guard lock(sessions_guard);
  const auto found = sessions().find(device);
  if (found == sessions().end()) {
    return Status::invalid("no graph is being captured on " + device->name() + ": call graph_begin first");
  }
  *out = std::move(found->second);
  (*out)->is_over = true;  // calls that other threads are making find nothing to note
  sessions().erase(found);
  --num_open;
  return {};
}

// The session of this stream; null if there is none.
SessionPtr find_session(Device* device, void* stream) {
  if (num_open.load(std::memory_order_acquire) == 0) return nullptr;
  const std::lock_guard lock(sessions_guard);
  const auto found = sessions().find(device);
  if (found == sessions().end() || found->second->recording->stream() != stream) return nullptr;
  return found->second;
}

Status note(Session* session, const OpInfo& op, const KernelPtr& kernel, Status launched,
            const std::shared_ptr<void>& needs) {
  const std::lock_guard lock(sessions_guard);
  if (session->is_over) return Status::invalid("the capture ended in another thread while this call was recorded");
  std::vector<GraphNode>& nodes = session->parts.nodes;
  const int index = static_cast<int>(nodes.size());
  if (launched.ok()) launched = session->recording->end_op();
  if (launched.ok()) {
    nodes.push_back({op.name, kernel->traits().id, index == 0 ? std::vector<int>() : std::vector<int>{index - 1}});
    if (needs) session->parts.needs.push_back(needs);
  } else if (session->failure.ok()) {
    session->failure = Status(launched.code(), "the capture failed at call " + std::to_string(index) + " (" +
                                                     op.name + " by " + kernel->traits().id +
                                                     "): " + launched.message());
  }
  return launched;
}

// The graph of somebody else may record what is launched on the stream.
Status keep_if_captured(Device* device, void* stream, const std::shared_ptr<void>& needs) {
  bool is_capturing = false;
  NPU_TRY(device->is_capturing(stream, &is_capturing));
  return is_capturing ? device->keep_in_capture(stream, needs) : Status();
}

}  // namespace

Status Graph::launch(void* stream, int64_t count) {
  if (!stream) return Status::invalid("launch: the stream is null; that of CUDA without a name is the handle 1");
  if (count < 0) return Status::invalid("launch: a graph cannot run " + std::to_string(count) + " times");
  const Exclusive exclusive(&is_running_);
  if (!exclusive.is_held()) return in_use();
  bool is_capturing = false;
  NPU_TRY(parts_.device->is_capturing(stream, &is_capturing));
  if (is_capturing) {
    return Status::invalid("launch: the stream is being captured, and a graph does not become part of another "
                           "one; launch it on another stream, or capture the ops themselves");
  }
  return parts_.executable->launch(stream, count);
}

Status Graph::update(Program* program) {
  const Exclusive exclusive(&is_running_);
  if (!exclusive.is_held()) return in_use();
  if (program->device() != parts_.device) {
    return Status::invalid("update: the graph is of " + parts_.device->name() + ", the program of " +
                           program->device()->name());
  }
  NPU_TRY(check_same_ops(parts_.nodes, program->ops()));
  std::unique_ptr<Recording> recording;
  std::vector<GraphNode> nodes;
  Topology topology = parts_.is_dag ? Topology::Dag : Topology::Chain;
  NPU_TRY(program->record(parts_.mode, &topology, &recording, &nodes));
  std::unique_ptr<Executable> replacement;
  NPU_TRY(parts_.device->update(parts_.executable.get(), recording.get(), &replacement).at("update"));
  if (replacement) parts_.executable = std::move(replacement);
  parts_.nodes = std::move(nodes);
  parts_.needs = {program->resources()};
  return {};
}

Status begin_capture(Device* device, CaptureMode mode, void** stream) {
  const std::lock_guard lock(sessions_guard);
  if (sessions().count(device) > 0) {
    return Status::invalid("a graph is being captured on " + device->name() + " already: end or abort it first");
  }
  auto session = std::make_shared<Session>();
  NPU_TRY(device->record(mode, false, &session->recording));
  session->parts = {device, {}, nullptr, {}, false, mode};
  *stream = session->recording->stream();
  sessions()[device] = std::move(session);
  ++num_open;
  return {};
}

Status end_capture(Device* device, std::unique_ptr<Graph>* out) {
  SessionPtr session;
  NPU_TRY(take_session(device, &session));
  if (!session->failure.ok()) return std::move(session->failure);
  NPU_TRY(session->recording->finish(&session->parts.executable));
  *out = std::make_unique<Graph>(std::move(session->parts));
  return {};
}

void abort_capture(Device* device) noexcept {
  SessionPtr session;
  if (!take_session(device, &session).ok()) return;  // there is nothing to abort
}

Status keep_in_graph(Device* device, void* stream, const std::shared_ptr<void>& needs) {
  const SessionPtr session = find_session(device, stream);
  if (!session) return device->keep_in_capture(stream, needs);
  const std::lock_guard lock(sessions_guard);
  session->parts.needs.push_back(needs);
  return {};
}

Status launch_or_record(Device* device, const OpInfo& op, const KernelPtr& kernel, const OpCall& call,
                        const std::shared_ptr<void>& needs) {
  const SessionPtr session = find_session(device, call.stream);
  if (!session && needs) NPU_TRY(keep_if_captured(device, call.stream, needs));
  Status launched = device->launch(kernel, call);  // without the lock: a kernel may be in Python
  return session ? note(session.get(), op, kernel, std::move(launched), needs) : std::move(launched);
}

}  // namespace npu
