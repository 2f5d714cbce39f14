// Copy: x -> y, element by element. One shape, rank up to 8, any strides (of x also 0); every dtype whose items have
// 1, 2, 4, 8 or 16 bytes. Kernels of this
// folder take tensors of one dtype; those that convert are of the pointwise op Cast.
#pragma once

#include "core/call.h"
#include "core/op_info.h"

namespace npu {

OpInfo copy_info();
// What kernels take that move items as they are.
Status expect_items(const TensorDesc& tensor);
Status copy_supported(const OpCall& call);
Cost copy_cost(const OpCall& call);

std::vector<KernelPtr> copy_host_kernels();
std::vector<KernelPtr> copy_cuda_kernels();

// Copies by other ops: x -> y for tensors that copy_supported takes.
Status copy_on_host(const TensorDesc& x, const TensorDesc& y);
Status copy_on_cuda(const TensorDesc& x, const TensorDesc& y, void* stream);
// Loads all code that such a copy of the first input may launch: see kernel_loading.h.
Status load_copies(const OpCall& call, void** state);

// Two tensors of one shape as a loop nest: axes of size 1 left out, ordered by the strides of y, neighbours that are
// one axis in memory joined. Axes that are contiguous in both become one axis.
struct StridedPair {
  int rank = 0;  // at least 1
  int64_t shape[NPU_MAX_RANK] = {};  // outermost first
  int64_t x_strides[NPU_MAX_RANK] = {};
  int64_t y_strides[NPU_MAX_RANK] = {};

  int last() const { return rank - 1; }
  bool is_contiguous() const { return rank == 1 && x_strides[0] == 1 && y_strides[0] == 1; }
  // The axis along which x is contiguous while y is contiguous along the last one; -1 if this is not a transposition.
  int transposed_axis() const;
};

// Returns the fewest axes on which both tensors, which have elements, are walked.
StridedPair collapse(const TensorDesc& x, const TensorDesc& y);

}  // namespace npu
