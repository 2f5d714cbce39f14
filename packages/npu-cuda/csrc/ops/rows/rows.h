// The ops over rows: softmax, norms and their gradients. To add an op, write its formula and its line in
// ops.h.
#pragma once

#include "core/op_info.h"

namespace npu::rows {

std::vector<OpInfo> infos();
std::vector<KernelPtr> host_kernels();
std::vector<KernelPtr> cuda_kernels();

// The parts, which are compiled apart.
std::vector<KernelPtr> softmaxes_of_host();
std::vector<KernelPtr> norms_of_host();
std::vector<KernelPtr> norm_gradients_of_host();
std::vector<KernelPtr> softmaxes_of_cuda();
std::vector<KernelPtr> norms_of_cuda();
std::vector<KernelPtr> norm_gradients_of_cuda();

}  // namespace npu::rows
