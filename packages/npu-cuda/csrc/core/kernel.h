// Kernel: one implementation of an op on one kind of device, from any source. In-tree kernels are two functions
// (FunctionKernel), those of shared libraries come through the C interface (library.cpp), and Python callables through
// the bindings; the registry and dispatch see no difference.
#pragma once

#include <initializer_list>
#include <memory>
#include <string>
#include <vector>

#include "core/call.h"

namespace npu {

// Pinned: the numbers are part of files and programs of others. Ops of libraries follow from kFirstLibraryOp.
enum class OpKind : int32_t {
  EltwiseAdd = 0, EltwiseRelu = 1, Gemm = 2, BiasAdd = 3, ReduceSum = 4, MseGrad = 5, ReluBwd = 6, SgdStep = 7,
  Copy = 8, GradZero = 9, AdamStep = 10, StepInc = 11, BiasCorr = 12, LayerNormFwd = 13, LayerNormBwd = 14,
  BatchNormFwd = 15, BatchNormBwd = 16, GemmEpilogue = 17, MultiSgd = 18, MultiAdam = 19,
};
inline constexpr int32_t kFirstLibraryOp = 1000;

enum class DeviceType : int32_t { Host = NPU_CPU, Cuda = NPU_CUDA };

struct KernelTraits {
  OpKind kind;
  std::string id;  // "relu.f32.cuda"
  DeviceType device;
  int32_t priority = 0;
  uint32_t flags = NPU_KERNEL_CAPTURE_SAFE | NPU_KERNEL_DETERMINISTIC;
  int32_t min_compute_capability = 0;  // 0: any
  int32_t max_compute_capability = 0;
  std::string origin = "npu-cuda";  // who brought it, for people
  DType input_dtype{};              // of the first input; of no bits: any
};

// Called from many threads at once.
class Kernel {
 public:
  explicit Kernel(KernelTraits traits) : traits_(std::move(traits)) {}
  Kernel(const Kernel&) = delete;
  Kernel& operator=(const Kernel&) = delete;
  virtual ~Kernel() = default;

  const KernelTraits& traits() const { return traits_; }
  bool is(uint32_t flag) const { return traits_.flags & flag; }
  // Whether it is worth asking: the first input has the dtype that is meant.
  bool may_take(const OpCall& call) const {
    return traits_.input_dtype.bits == 0 || (call.num_inputs > 0 && call.inputs[0].dtype == traits_.input_dtype);
  }

  // Ok, or NotImplemented with the reason. Reads descriptions only (data may be null); calls no device.
  virtual Status supported(const OpCall& call) const = 0;
  // Only for a call that it supports: whoever launches has asked, with these tensors or their descriptions.
  virtual Status launch(const OpCall& call) const = 0;

  virtual uint64_t workspace_bytes(const OpCall&) const { return 0; }
  virtual Status prepare(const OpCall&, void** state) const { return *state = nullptr, Status(); }
  virtual void release(void*) const noexcept {}
  virtual Cost cost(const OpCall& call) const { return cost_of(call, 0); }

 private:
  KernelTraits traits_;
};

using KernelPtr = std::shared_ptr<const Kernel>;

template <class T>
std::vector<T> joined(std::initializer_list<std::vector<T>> lists) {
  std::vector<T> all;
  for (const std::vector<T>& list : lists) all.insert(all.end(), list.begin(), list.end());
  return all;
}

struct KernelFunctions {
  Status (*supported)(const OpCall& call);
  Status (*launch)(const OpCall& call);
  Cost (*cost)(const OpCall& call) = nullptr;
  uint64_t (*workspace_bytes)(const OpCall& call) = nullptr;
  Status (*prepare)(const OpCall& call, void** state) = nullptr;
};

// `input_dtype`: the only one that the first input may have; without it the kernel is asked about any.
KernelPtr make_kernel(KernelTraits traits, KernelFunctions functions, DType input_dtype = {});

}  // namespace npu
