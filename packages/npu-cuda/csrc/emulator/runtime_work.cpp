#include <algorithm>
#include <random>

#include "emulator/runtime.h"

namespace npu::emulator {
namespace {

// The position that the schedule picks among `count` that are all right.
size_t choose(size_t count) {
  static std::mt19937 random;
  const int order = schedule();
  if (order == 0) return 0;
  return order == 1 ? count - 1 : random() % count;
}

std::vector<TaskPtr> what_comes_before(cudaStream_t stream) {
  std::vector<TaskPtr> before{stream->last};
  if (is_legacy(stream)) {
    for (cudaStream_t other : runtime().streams) {
      if (is_blocking(other)) before.push_back(other->last);
    }
    for (auto& [thread, other] : runtime().per_thread) before.push_back(other->last);
  } else if (is_blocking(stream)) {
    before.push_back(runtime().legacy.last);
  }
  return before;
}

void record(cudaStream_t stream, Work work) {
  cudaGraph_t graph = stream->capture->graph;
  graph->nodes.push_back(std::make_unique<CUgraphNode_st>(
      CUgraphNode_st{graph, work.type, std::move(work.run), stream->dependencies, std::move(work.launch)}));
  stream->dependencies = {graph->nodes.back().get()};
}

void forget_finished() {
  std::erase_if(runtime().pending, [](const TaskPtr& task) { return task->done; });
}

}  // namespace

cudaError_t submit(cudaStream_t stream, Work work, TaskPtr* task) {
  if (stream->capture != nullptr) {
    if (stream->capture->invalidated) return cudaErrorStreamCaptureInvalidated;
    record(stream, std::move(work));
    return cudaSuccess;
  }
  if (const cudaError_t error = check_legacy_use(stream); error != cudaSuccess) return error;
  auto queued = std::make_shared<Task>(Task{std::move(work.run), what_comes_before(stream)});
  queued->after.insert(queued->after.end(), work.after.begin(), work.after.end());
  std::erase_if(queued->after, [](const TaskPtr& before) { return before == nullptr || before->done; });
  stream->last = queued;
  if (task != nullptr) *task = queued;
  if (runtime().deferred) {
    runtime().pending.push_back(queued);
  } else {
    finish(queued);
  }
  return cudaSuccess;
}

void finish(const TaskPtr& task) {
  std::vector<TaskPtr> stack;
  if (task != nullptr) stack.push_back(task);
  while (!stack.empty()) {
    const TaskPtr top = stack.back();
    std::erase_if(top->after, [](const TaskPtr& before) { return before->done; });
    if (!top->done && !top->after.empty()) {
      stack.push_back(top->after[choose(top->after.size())]);
      continue;
    }
    stack.pop_back();
    if (top->done) continue;
    if (runtime().device_error == cudaSuccess) top->run();
    top->run = nullptr;
    top->done = true;
  }
}

void finish_stream(cudaStream_t stream) {
  if (is_legacy(stream)) {
    for (const TaskPtr& task : what_comes_before(stream)) finish(task);
  } else {
    finish(stream->last);
  }
  forget_finished();
}

void finish_everything() {
  while (!runtime().pending.empty()) {
    finish(runtime().pending[choose(runtime().pending.size())]);
    forget_finished();
  }
}

void run_program(const Program& program) {
  std::vector<size_t> open(program.size());  // how many a node still waits for
  std::vector<std::vector<size_t>> next(program.size());
  std::vector<size_t> ready;
  for (size_t node = 0; node < program.size(); ++node) {
    open[node] = program[node].after.size();
    for (const size_t before : program[node].after) next[before].push_back(node);
    if (open[node] == 0) ready.push_back(node);
  }
  while (!ready.empty() && runtime().device_error == cudaSuccess) {
    const auto chosen = ready.begin() + static_cast<std::ptrdiff_t>(choose(ready.size()));
    const size_t node = *chosen;
    ready.erase(chosen);
    program[node].run();
    for (const size_t follower : next[node]) {
      if (--open[follower] == 0) ready.insert(std::upper_bound(ready.begin(), ready.end(), follower), follower);
    }
  }
}

}  // namespace npu::emulator
