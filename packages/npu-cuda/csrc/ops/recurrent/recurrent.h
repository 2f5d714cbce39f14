// Recurrent: X, P, H0[, C0][, bias] -> Y, HN[, CN], on the host only: one layer, in one direction, of an LSTM, a GRU or a
// plain recurrent network. X [t, b, gates * n] is the input of each step, projected already: x W^T + bias. The gates are
// those of PyTorch, in its order. At each step the gates get h W_h^T + bias, where h [b, n] is H0 first, Y [t, b, n] has
// it after each step, and HN [b, n] after the last; an LSTM has a second state, from C0 to CN. `reverse`: from the last
// step to the first.
//
// P [panels, n, gates * units] has W_h, of `units` outputs at a time: all gates of an output are in one panel, gate by
// gate, and 0 beyond the last output. bias [panels, 1, gates * units] likewise. Dtypes: all f32, f16 or bf16; states and
// sums are f32 from the first step to the last. X, H0, C0 and the results have any strides; P and bias are contiguous.
#pragma once

#include "core/op_info.h"
#include "ops/gemm/gemm.h"

namespace npu::recurrent {

inline constexpr OpKind kRecurrent{390};

inline constexpr int64_t kMostWidth = 64;  // columns of a panel

enum class Cell : int32_t { Tanh, Relu, Lstm, Gru };

struct Attrs {
  int32_t cell = 0;
  int32_t reverse = 0;
  int32_t has_bias = 0;
};

struct Problem {
  Cell cell;
  bool is_reversed;
  int64_t steps, rows, n;
  int64_t gates, units, panels;
  const TensorDesc *x, *y, *h0, *hn, *c0, *cn;  // c0 and cn: null where there is no second state
  const void* weights;
  const void* bias;  // null: there is none
  pointwise::Element element;

  int64_t width() const { return gates * units; }
};

Status supported(const OpCall& call);
// Returns the problem of a call that `supported` takes.
Problem problem_of(const OpCall& call);
Cost cost(const OpCall& call);

std::vector<OpInfo> infos();
std::vector<KernelPtr> host_kernels();

}  // namespace npu::recurrent
