//   Attention: q, k, v[, mask] -> o[, lse]
//
// o = softmax(scale * q k^T + mask) v. q is [batch, heads, queries, size], k
// [batch, groups, keys, size], v [batch, groups, keys, value size], heads a multiple of groups; f32, f16 or bf16, of any
// strides. A mask is broadcast to [batch, heads, queries, keys]: true where a query takes a key, or numbers of the dtype of
// q that are added. is_causal: query i takes the keys up to i. A query without keys gives 0. lse, of f32, is the logarithm
// of the sum of exponentials of each query.
//
//   AttentionGradient: do, q, k, v, o, lse[, mask] -> dq, dk, dv
//
// has the tensors of an Attention, their gradients, and its attributes; k and v have as many heads as q.
//
// Nothing of the size of queries x keys is in memory, but for a mask: scores are made in blocks of keys, with the largest
// one of each query so far (Milakov and Gimelshein, Online normalizer calculation for softmax, 2018; Dao et al.,
// FlashAttention, 2022).
#pragma once

#include "core/op_info.h"

namespace npu::attention {

inline constexpr OpKind kAttention{380}, kGradient{381};

struct Attrs {
  float scale = 0;  // 0: 1 / sqrt(size)
  int32_t is_causal = 0;
};

struct View {
  char* data;
  int64_t strides[4];  // elements; 0 where it is broadcast

  char* at(int64_t item_bytes, int64_t batch, int64_t head, int64_t row = 0) const {
    return data + (batch * strides[0] + head * strides[1] + row * strides[2]) * item_bytes;
  }
};

struct Geometry {
  DType dtype;
  int64_t batch, heads, groups, queries, keys, size, value_size;
  float scale;
  bool is_causal, has_mask, mask_is_truth, has_lse;
  int64_t mask_sizes[2];  // of batch and heads
  View q, k, v, mask, o, lse;
  View d_o, d_q, d_k, d_v;  // of a gradient

  int64_t heads_of_group() const { return heads / groups; }
};

Status check(const OpCall& call);
Geometry geometry_of(const OpCall& call);
Cost cost(const OpCall& call);
Status check_gradient(const OpCall& call);
Geometry geometry_of_gradient(const OpCall& call);
Cost gradient_cost(const OpCall& call);

std::vector<OpInfo> infos();
std::vector<KernelPtr> host_kernels();
KernelPtr gradient_host_kernel();

}  // namespace npu::attention
