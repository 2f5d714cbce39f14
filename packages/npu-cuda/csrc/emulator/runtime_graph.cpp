// Graphs and their nodes: making, reading, drawing.
#include <algorithm>
#include <fstream>

#include "emulator/runtime_call.h"
#include "emulator/runtime_capture.h"
#include "emulator/symbols.h"

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

bool is_node_of(const CUgraph_st& graph, cudaGraphNode_t node) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(), [&](const auto& own) { return own.get() == node; });
}

bool is_alive(cudaGraphNode_t node) {
  const auto& graphs = runtime().graphs;
  return std::any_of(graphs.begin(), graphs.end(), [&](cudaGraph_t graph) { return is_node_of(*graph, node); });
}

std::string label(const CUgraphNode_st& node) {
  if (node.type == cudaGraphNodeTypeKernel) return kernel_name(node.launch.kernel);
  if (node.type == cudaGraphNodeTypeMemcpy) return "memcpy";
  if (node.type == cudaGraphNodeTypeMemset) return "memset";
  return "node of type " + std::to_string(static_cast<int>(node.type));
}

}  // namespace
}  // namespace npu::emulator

using namespace npu::emulator;

cudaError_t cudaGraphCreate(cudaGraph_t* graph, unsigned) {
  return call("cudaGraphCreate", [&] {
    *graph = new CUgraph_st;
    runtime().graphs.insert(*graph);
    return cudaSuccess;
  });
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  return call("cudaGraphDestroy", CallKind::Release, [&] {
    if (!runtime().graphs.contains(graph)) return cudaErrorInvalidValue;
    discard_graph(graph);
    return cudaSuccess;
  });
}

cudaError_t cudaGraphAddEmptyNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t* after,
                                  size_t count) {
  return call("cudaGraphAddEmptyNode", [&] {
    if (!runtime().graphs.contains(graph)) return cudaErrorInvalidValue;
    graph->nodes.push_back(std::make_unique<CUgraphNode_st>(
        CUgraphNode_st{graph, cudaGraphNodeTypeEmpty, [] {}, {after, after + count}, {}}));
    *node = graph->nodes.back().get();
    return cudaSuccess;
  });
}

cudaError_t cudaGraphAddDependencies(cudaGraph_t graph, const cudaGraphNode_t* from, const cudaGraphNode_t* to,
                                     const cudaGraphEdgeData*, size_t count) {
  return call("cudaGraphAddDependencies", [&] {
    if (!runtime().graphs.contains(graph)) return cudaErrorInvalidValue;
    for (size_t i = 0; i < count; ++i) {
      if (!is_node_of(*graph, from[i]) || !is_node_of(*graph, to[i])) return cudaErrorInvalidValue;
      to[i]->after.push_back(from[i]);
    }
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

cudaError_t cudaGraphGetRootNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count) {
  return call("cudaGraphGetRootNodes", [&] {
    if (!runtime().graphs.contains(graph)) return cudaErrorInvalidValue;
    std::vector<cudaGraphNode_t> roots;
    for (const auto& node : graph->nodes) {
      if (node->after.empty()) roots.push_back(node.get());
    }
    copy_out(roots, nodes, count);
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

cudaError_t cudaGraphNodeGetDependencies(cudaGraphNode_t node, cudaGraphNode_t* before, cudaGraphEdgeData* edges,
                                         size_t* count) {
  return call("cudaGraphNodeGetDependencies", [&] {
    if (!is_alive(node)) return cudaErrorInvalidValue;
    copy_out(node->after, before, count);
    if (edges != nullptr) std::fill(edges, edges + *count, cudaGraphEdgeData{});
    return cudaSuccess;
  });
}

cudaError_t cudaGraphNodeGetType(cudaGraphNode_t node, cudaGraphNodeType* type) {
  return call("cudaGraphNodeGetType", [&] {
    if (!is_alive(node)) return cudaErrorInvalidValue;
    *type = node->type;
    return cudaSuccess;
  });
}

cudaError_t cudaGraphKernelNodeGetParams(cudaGraphNode_t node, cudaKernelNodeParams* params) {
  return call("cudaGraphKernelNodeGetParams", [&] {
    if (!is_alive(node) || node->type != cudaGraphNodeTypeKernel) return cudaErrorInvalidValue;
    *params = {};
    params->func = const_cast<void*>(node->launch.kernel);
    params->gridDim = node->launch.grid;
    params->blockDim = node->launch.block;
    params->sharedMemBytes = static_cast<unsigned>(node->launch.shared_bytes);
    return cudaSuccess;
  });
}

cudaError_t cudaGraphDebugDotPrint(cudaGraph_t graph, const char* path, unsigned) {
  return call("cudaGraphDebugDotPrint", [&] {
    if (!runtime().graphs.contains(graph)) return cudaErrorInvalidValue;
    std::ofstream file(path);
    file << "digraph {\n";
    for (const auto& node : graph->nodes) {
      file << "  \"" << node.get() << "\" [label=\"" << label(*node) << "\"];\n";
      for (cudaGraphNode_t before : node->after) file << "  \"" << before << "\" -> \"" << node.get() << "\";\n";
    }
    file << "}\n";
    return file ? cudaSuccess : cudaErrorUnknown;
  });
}
