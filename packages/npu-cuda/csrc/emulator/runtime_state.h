// The state of the fake CUDA runtime: the objects behind the opaque handles of the CUDA API, and one Runtime that
// lists all live ones. Everything here is read and changed under Runtime::mutex only.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "emulator/kernel_launch.h"

namespace npu::emulator {

// Work on a stream, and the work that has to be done before.
struct Task {
  std::function<void()> run;
  std::vector<std::shared_ptr<Task>> after;
  bool done = false;
};
using TaskPtr = std::shared_ptr<Task>;

// A capture of a stream in progress. It ends by cudaStreamEndCapture, also when it was invalidated before.
struct Capture {
  cudaStreamCaptureMode mode;
  std::thread::id thread;  // that began it
  cudaStream_t stream;
  cudaGraph_t graph;
  unsigned long long id;
  bool invalidated = false;
};
using CapturePtr = std::shared_ptr<Capture>;

// The nodes of an instantiated graph, by position; never changed, so that launches may still run an old one.
struct ProgramNode {
  cudaGraphNodeType type;
  const void* kernel;
  std::function<void()> run;
  std::vector<size_t> after;
};
using Program = std::vector<ProgramNode>;

}  // namespace npu::emulator

struct CUstream_st {
  unsigned flags;
  npu::emulator::TaskPtr last;  // null where nothing was queued
  npu::emulator::CapturePtr capture;
  std::vector<cudaGraphNode_t> dependencies;  // in a capture: what the next node comes after
  std::vector<cudaGraphEdgeData> edges;       // what cudaStreamGetCaptureInfo gave out of them
};

struct CUgraphNode_st {
  cudaGraph_t graph;
  cudaGraphNodeType type;
  std::function<void()> run;
  std::vector<cudaGraphNode_t> after;
  npu::emulator::KernelLaunch launch;  // of a kernel node
};

struct CUevent_st {
  npu::emulator::TaskPtr last;  // null where it was never recorded
};

struct CUuserObject_st {
  std::shared_ptr<void> kept;
};

struct CUgraph_st {
  std::vector<std::unique_ptr<CUgraphNode_st>> nodes;  // in the order in which they were added
  std::vector<std::shared_ptr<void>> kept;             // for the user
};

struct CUgraphExec_st {
  std::shared_ptr<const npu::emulator::Program> program;
  npu::emulator::TaskPtr last;  // launches of one exec never overlap
  std::vector<std::shared_ptr<void>> kept;
};

namespace npu::emulator {

struct Runtime {
  std::recursive_mutex mutex;
  std::map<const void*, size_t> allocations;  // their bytes
  std::set<cudaStream_t> streams;
  std::set<cudaEvent_t> events;
  std::set<cudaGraph_t> graphs;
  std::set<cudaGraphExec_t> execs;
  std::vector<CapturePtr> captures;
  std::vector<TaskPtr> pending;                    // queued and not run
  std::map<const void*, int> dynamic_shared_limit;  // of kernels that raised it
  CUstream_st legacy{};
  std::map<std::thread::id, std::unique_ptr<CUstream_st>> per_thread;
  bool deferred = false;
  int devices = 1;
  cudaError_t device_error = cudaSuccess;  // sticky
};

// Never destroyed: handles may be released while the process ends.
Runtime& runtime();

// The stream behind a handle; null if there is none.
cudaStream_t find_stream(cudaStream_t handle);
inline bool is_legacy(cudaStream_t stream) { return stream == &runtime().legacy; }
inline bool is_blocking(cudaStream_t stream) { return !(stream->flags & cudaStreamNonBlocking); }

}  // namespace npu::emulator
