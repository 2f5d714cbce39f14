// The capture of single op calls: which graph is being recorded on which device, and by which calls.
#include <map>
#include <mutex>

#include "core/graph.h"
#include "core/op_info.h"

namespace npu {
namespace {

struct Session {
  std::unique_ptr<Recording> recording;
  Graph::Parts parts;
  Status failure;  // says at which call, and how
  bool is_over = false;
};

using SessionPtr = std::shared_ptr<Session>;

std::mutex guard;              // of the sessions
std::atomic<int> num_open{0};  // launches look no further where it is 0

std::map<Device*, SessionPtr>& sessions() {
  static auto* all = new std::map<Device*, SessionPtr>();  // outlives every user
  return *all;
}

Status take_session(Device* device, SessionPtr* out) {
  const std::lock_guard lock(guard);
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
  const std::lock_guard lock(guard);
  const auto found = sessions().find(device);
  if (found == sessions().end() || found->second->recording->stream() != stream) return nullptr;
  return found->second;
}

Status note(Session* session, const OpInfo& op, const KernelPtr& kernel, Status launched,
            const std::shared_ptr<void>& needs) {
  const std::lock_guard lock(guard);
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

}  // namespace

Status begin_capture(Device* device, CaptureMode mode, void** stream) {
  const std::lock_guard lock(guard);
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

Status launch_or_record(Device* device, const OpInfo& op, const KernelPtr& kernel, const OpCall& call,
                        const std::shared_ptr<void>& needs) {
  const SessionPtr session = find_session(device, call.stream);
  Status launched = device->launch(kernel, call);  // without the lock: a kernel may be in Python
  return session ? note(session.get(), op, kernel, std::move(launched), needs) : std::move(launched);
}

}  // namespace npu
