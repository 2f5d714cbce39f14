// The negative log likelihood of classes. NllLossFwd: x, target(, weight) -> y, total. x is [rows, classes],
// or [classes] of one row; target has a class, an int64, for each row, and weight a factor for each class. A
// row has the loss -weight * x[class], or 0 where its class is the ignored one. y is the losses (reduction
// 0), their mean, weighted (1), or their sum (2); total is the sum of the weights, but 0 of losses that are
// not reduced. NllLossBwd: dy, target(, weight), total -> dx, the gradient for x. A class that is not there
// is an error.
#pragma once

#include "core/op_info.h"
#include "ops/pointwise/pointwise.h"

namespace npu::rows {

struct NllAttrs {
  int64_t reduction = 1, ignore_index = -100;
};

struct NllSizes {
  int64_t rows, classes, row_stride, class_stride;  // of x or dx
  bool has_weight, is_reduced;
};

std::vector<OpInfo> nll_infos();
Status check_nll(const OpCall& call, bool is_gradient, pointwise::Class type);
NllSizes nll_sizes(const OpCall& call, bool is_gradient);

std::vector<KernelPtr> nll_host_kernels();
std::vector<KernelPtr> nll_cuda_kernels();

}  // namespace npu::rows
