// ListTable: the tensors of lists, as a parameter of a kernel. Each block computes a part of the operands at one place of
// the lists; where the table is full, another launch has the rest.
#pragma once

#include "ops/lists/lists.h"
#include "ops/pointwise/cuda_rows.cuh"
#include "ops/pointwise/nest.h"

namespace npu::lists {

inline constexpr int64_t kPart = 4096;        // elements of a block
#ifdef NPU_EMULATE
inline constexpr int kTableBytes = 2 << 10;  // so that tests of launches that follow one another are short
#else
inline constexpr int kTableBytes = 16 << 10;  // CUDA 12.1 takes 32 KB of parameters, before it 4
#endif

template <int kOperands>
struct ListTable {
  static constexpr int kMost = kTableBytes / (9 * kOperands + 17);  // places
  void* data[kMost][kOperands];
  int64_t numel[kMost];
  uint32_t first_block[kMost];
  uint32_t constants[kMost];  // a bit for each operand that is one element for all
  pointwise::Element element[kMost][kOperands];
  bool is_aligned[kMost];  // all is float32 and, but for constants, aligned to 16 bytes
  int count;

  // The place that a block computes: the last one that begins at it or before.
  __device__ int find(uint32_t block) const {
    int low = 0, high = count;
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      (first_block[middle] <= block ? low : high) = middle;
    }
    return low;
  }
};

// Fills a table with places of lists that have elements; each is the operands of a call.
template <int kOperands>
struct TableBuilder {
  ListTable<kOperands> table;
  uint32_t blocks = 0;

  void clear() { table.count = 0, blocks = 0; }
  bool is_full() const { return table.count == ListTable<kOperands>::kMost; }

  void add(const OpCall& one) {
    const int place = table.count++;
    const int64_t n = one.outputs[0].numel;
    table.numel[place] = n;
    table.first_block[place] = blocks;
    table.constants[place] = 0;
    table.is_aligned[place] = true;
    blocks += static_cast<uint32_t>((n + kPart - 1) / kPart);
    for (int k = 0; k < kOperands; ++k) {
      const TensorDesc& tensor = pointwise::operand_of(one, k);
      const bool is_constant = tensor.numel == 1 && n != 1;
      table.data[place][k] = tensor.data;
      table.element[place][k] = pointwise::element_of(tensor.dtype);
      table.constants[place] |= uint32_t{is_constant} << k;
      table.is_aligned[place] &= tensor.dtype == kFloat32 &&
                                 (is_constant || reinterpret_cast<uintptr_t>(tensor.data) % kVectorBytes == 0);
    }
  }
};

// Calls launch(table, blocks) for tables with all places, each of which one(i) gives as a call.
template <int kOperands, class One, class Launch>
Status each_table(int length, One one, Launch launch) {
  TableBuilder<kOperands> builder;
  builder.clear();
  for (int i = 0; i < length; ++i) {
    const OpCall call = one(i);
    if (call.outputs[0].numel > 0) builder.add(call);
    if (builder.blocks == 0 || !(builder.is_full() || i + 1 == length)) continue;
    NPU_TRY(launch(builder.table, builder.blocks));
    builder.clear();
  }
  return {};
}

// The operands of a call are read and written in the order in which they are in memory.
inline Status expect_rows(const OpCall& one) {
  if (one.outputs[0].numel >= int64_t{1} << 31) return Status::not_implemented("a tensor has 2^31 elements or more");
  if (one.outputs[0].numel == 0 || pointwise::nest_of(one).is_flat()) return {};
  return Status::not_implemented("tensors differ in their layout, or have gaps: the output is " + text_of(one.outputs[0]));
}

}  // namespace npu::lists
