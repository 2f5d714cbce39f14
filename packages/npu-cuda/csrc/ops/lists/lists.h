// List forms of pointwise ops: one call, and on CUDA one launch, for all tensors of lists of one length, such as the
// parameters of an optimizer with their gradients and states. They compute the expressions of the ops, tensor by tensor.
// To give an op a list form, add it to list_forms() in lists.cpp, and for CUDA to CudaForms in cuda_lists.cu.
#pragma once

#include <functional>

#include "ops/pointwise/pointwise.h"

namespace npu::lists {

// Calls of a single op that a call of its list form stands for. All its inputs and outputs are lists.
class Elements {
 public:
  // `inputs`: of the single op. The inputs behind them are numbers in memory, one for each of these attributes of it.
  Elements(const OpCall& call, int inputs, int outputs, const std::vector<AttrField>& numbers)
      : call_(call), length_(call.num_outputs / outputs), inputs_(inputs), numbers_(numbers) {}

  int length() const { return length_; }
  int64_t numel(int i) const { return call_.outputs[i].numel; }  // of the call of this number
  // The call of this number; its descriptions are stored in `tensors`.
  OpCall at(int i, TensorDesc* tensors) const;
  bool has_numbers() const { return call_.num_inputs > inputs_ * length_; }
  // Writes the numbers of this call into attributes as the op reads them.
  void read_numbers(int i, char* attrs) const;
  Status check_numbers() const;

 private:
  const TensorDesc& number(int which, int i) const { return call_.inputs[(inputs_ + which) * length_ + i]; }

  const OpCall& call_;
  int length_, inputs_;
  const std::vector<AttrField>& numbers_;
};

// An op computed in one class, for elements of lists.
struct ListOp {
  pointwise::Row row;
  pointwise::Class type;
  Status (*supported)(const OpCall& element);
  Cost (*cost)(const OpCall& element);
  std::function<Status(const OpCall& call, const Elements& elements)> launch;
  Status (*prepare)(const OpCall& call, void** state) = nullptr;
};

std::vector<OpInfo> infos();
// A kernel for each list form and class of these ops.
std::vector<KernelPtr> kernels_of(const std::vector<ListOp>& ops, DeviceType device);

std::vector<KernelPtr> host_kernels();
std::vector<KernelPtr> cuda_kernels();

}  // namespace npu::lists
