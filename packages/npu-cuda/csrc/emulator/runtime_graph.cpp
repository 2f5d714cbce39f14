// Graphs and their nodes; instantiated graphs: launching and updating. Making, updating and destroying one allocates and
// frees; NVIDIA does not say whether that is unsafe in a capture, so here it is.
#include <algorithm>

#include "emulator/runtime.h"

namespace npu::emulator {
namespace {

// As CUDA's lists are asked for: first the count, with a null array; then at most *count entries.
template <class T>
void copy_out(const std::vector<T>& from, T* to, size_t* count) {
  if (to == nullptr) {
    *count = from.size();
    return;
  }
  const size_t copied = std::min(*count, from.size());
  std::copy_n(from.begin(), copied, to);
  std::fill(to + copied, to + *count, T{});
  *count = copied;
}

Program program_of(const CUgraph_st& graph) {
  std::map<const CUgraphNode_st*, size_t> positions;
  for (const auto& node : graph.nodes) positions.emplace(node.get(), positions.size());
  Program program;
  for (const auto& node : graph.nodes) {
    program.push_back({node->type, node->launch.kernel, node->run, {}});
    for (cudaGraphNode_t before : node->after) program.back().after.push_back(positions.at(before));
    std::sort(program.back().after.begin(), program.back().after.end());
  }
  return program;
}

cudaError_t instantiate(cudaGraphExec_t* exec, cudaGraph_t graph) {
  *exec = nullptr;
  if (!runtime().graphs.contains(graph)) return cudaErrorInvalidValue;
  if (const cudaError_t error = check_unsafe_call(); error != cudaSuccess) return error;
  *exec = new CUgraphExec_st{std::make_shared<const Program>(program_of(*graph)), nullptr, graph->kept};
  runtime().execs.insert(*exec);
  return cudaSuccess;
}

cudaError_t launch(cudaGraphExec_t exec, cudaStream_t stream) {
  if (stream == nullptr) return cudaErrorInvalidResourceHandle;
  if (!runtime().execs.contains(exec)) return cudaErrorInvalidValue;
  TaskPtr task;
  Work work{cudaGraphNodeTypeGraph, [program = exec->program] { run_program(*program); }, {}, {exec->last}};
  const cudaError_t error = submit(stream, std::move(work), &task);
  if (task != nullptr) exec->last = task;
  return error;
}

// What an update may not change.
bool are_alike(const ProgramNode& one, const ProgramNode& other) {
  return one.type == other.type && one.after == other.after && one.kernel == other.kernel;
}

cudaError_t update(cudaGraphExec_t exec, cudaGraph_t graph, cudaGraphExecUpdateResultInfo* info) {
  if (!runtime().execs.contains(exec) || !runtime().graphs.contains(graph)) return cudaErrorInvalidValue;
  if (const cudaError_t error = check_unsafe_call(); error != cudaSuccess) return error;
  const Program& old = *exec->program;
  Program next = program_of(*graph);
  *info = {};
  if (!std::equal(old.begin(), old.end(), next.begin(), next.end(), are_alike)) {
    info->result = cudaGraphExecUpdateErrorTopologyChanged;
    return cudaErrorGraphExecUpdateFailure;
  }
  exec->program = std::make_shared<const Program>(std::move(next));
  exec->kept = graph->kept;
  return cudaSuccess;
}

}  // namespace

}  // namespace npu::emulator

using namespace npu::emulator;

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  return call("cudaGraphDestroy", CallKind::Release, [&] {
    if (!runtime().graphs.contains(graph)) return cudaErrorInvalidValue;
    discard_graph(graph);
    return cudaSuccess;
  });
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count) {
  return call("cudaGraphGetNodes", [&] {
    if (!runtime().graphs.contains(graph)) return cudaErrorInvalidValue;
    std::vector<cudaGraphNode_t> all;
    for (const auto& node : graph->nodes) all.push_back(node.get());
    copy_out(all, nodes, count);
    return cudaSuccess;
  });
}

cudaError_t cudaGraphGetEdges(cudaGraph_t graph, cudaGraphNode_t* from, cudaGraphNode_t* to,
                              cudaGraphEdgeData* edges, size_t* count) {
  return call("cudaGraphGetEdges", [&] {
    if (!runtime().graphs.contains(graph)) return cudaErrorInvalidValue;
    std::vector<cudaGraphNode_t> sources, targets;
    for (const auto& node : graph->nodes) {
      for (cudaGraphNode_t before : node->after) {
        sources.push_back(before);
        targets.push_back(node.get());
      }
    }
    size_t filled = *count;
    copy_out(sources, from, &filled);
    if (to != nullptr) copy_out(targets, to, count);
    if (edges != nullptr) std::fill(edges, edges + filled, cudaGraphEdgeData{});
    *count = filled;
    return cudaSuccess;
  });
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* exec, cudaGraph_t graph, unsigned long long) {
  return call("cudaGraphInstantiate", [&] { return instantiate(exec, graph); });
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
  return call("cudaGraphExecDestroy", CallKind::Release, [&] {
    if (runtime().execs.erase(exec) == 0) return cudaErrorInvalidValue;
    delete exec;
    return check_unsafe_call();
  });
}

cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t handle) {
  return call("cudaGraphUpload", [&] {
    if (!runtime().execs.contains(exec)) return cudaErrorInvalidValue;
    cudaStream_t stream = find_stream(handle);
    if (stream == nullptr) return cudaErrorInvalidResourceHandle;
    return stream->capture != nullptr ? cudaErrorStreamCaptureUnsupported : check_legacy_use(stream);
  });
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream) {
  return call("cudaGraphLaunch", [&] { return launch(exec, find_stream(stream)); });
}

cudaError_t cudaGraphExecUpdate(cudaGraphExec_t exec, cudaGraph_t graph, cudaGraphExecUpdateResultInfo* info) {
  return call("cudaGraphExecUpdate", [&] { return update(exec, graph, info); });
}
