// GemmEpilogue: A, B[, bias][, aux] -> D[, aux][, dbias], products of Gemm with alpha = 1 and beta = 0, and what
// usually follows:
//
//   0 bias             D = z, where z = op(A) op(B) + bias
//   1 bias_relu        D = relu(z)
//   2 relu             D = relu(op(A) op(B))
//   3 bias_relu_aux    D = relu(z), aux = z
//   4 drelu            D = op(A) op(B) where aux > 0, else 0; aux is an input, also below
//   5 drelu_bgrad      the same, and dbias
//   6 bgrad            D = op(A) op(B), and dbias
//   7 bias_gelu_aux    D = gelu(z), aux = z; gelu by tanh, as cuBLASLt computes it
//   8 dgelu_bgrad      D = op(A) op(B) * gelu'(aux), and dbias
//
// bias and dbias are [n], dbias the sums of the rows of D; aux has the shape of D. One dtype.
#pragma once

#include "ops/gemm/gemm.h"

namespace npu {
namespace gemm {

enum Epilogue : uint32_t { Bias, BiasRelu, Relu, BiasReluAux, DRelu, DReluBgrad, Bgrad, BiasGeluAux, DGeluBgrad };

struct EpilogueAttrs {
  int32_t ta = 0;
  int32_t tb = 0;
  int32_t precision = 0;
  uint32_t epilogue = 0;
};

// The tensors of a call; null where there is none.
struct EpilogueCall {
  Epilogue epilogue;
  const TensorDesc *bias = nullptr, *read_aux = nullptr, *written_aux = nullptr, *dbias = nullptr;

  explicit EpilogueCall(const OpCall& call);
  Problem problem(const OpCall& call) const;
};

Status epilogue_supported(const OpCall& call);

}  // namespace gemm

OpInfo gemm_epilogue_info();
std::vector<KernelPtr> gemm_epilogue_host_kernels();
std::vector<KernelPtr> gemm_epilogue_cuda_kernels();

}  // namespace npu
