// The CUDA C++ of a chain: one kernel, "chain", whose only parameter is Rows. The steps are the expressions of the tables,
// written down by Recorder; each tensor is a variable of its element type, so that numbers are rounded between steps
// as the single ops round them. Compile it without contraction (--fmad=false), as the kernels of the single ops
// are. The text needs no header, and depends on dtypes, steps, attributes and the layout, not on shapes.
#pragma once

#include "ops/fused/chain.h"

namespace npu::fusion {

inline constexpr char kChainKernel[] = "chain";
inline constexpr int kChainThreads = 256;

#define NPU_CODE_AND_TEXT(text, ...) \
  __VA_ARGS__;                       \
  inline constexpr char text[] = #__VA_ARGS__ ";\n"

// What a call passes: addresses, inputs first; numel; per axis, the innermost first, its size and how to divide by it
// (FastDivision); strides in elements. Flat kernels read the first two.
NPU_CODE_AND_TEXT(kRowsText, struct Rows {
  void* data[16];
  long long numel;
  unsigned shape[8], multiplier[8], shift[8];
  unsigned strides[16][8];
});
static_assert(pointwise::kMaxOperands == 16 && NPU_MAX_RANK == 8);

// How the tensors of a call are in memory.
struct CudaLayout {
  // Makes the layout of a call that has elements.
  CudaLayout(const pointwise::Nest& nest, const OpCall& call);

  bool is_flat;         // rows of one order, and single elements; aligned to 16 bytes
  int rank;             // of the nest, where it is not flat
  unsigned single = 0;  // where it is: a bit for each tensor of one element

  // Returns the items of one thread: 16 bytes of the widest tensor, or one item.
  int items(const Chain& chain) const;
};

std::string cuda_text(const Chain& chain, const CudaLayout& layout);

}  // namespace npu::fusion
