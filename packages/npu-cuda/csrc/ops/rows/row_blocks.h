// The rows of a call on the host, one after the other, as contiguous numbers. A row that is stored so is
// taken as it is; another one is read into a buffer, in blocks where it is longer than that, which are then
// read again in each pass over the row.
#pragma once

#include "ops/pointwise/host_rows.h"
#include "ops/rows/row_call.h"

namespace npu::rows {

inline constexpr int64_t kBlock = 4096;
inline constexpr int kBuffers = 5;

struct HostOperand {
  char* data;
  int64_t bytes;  // of an element
  pointwise::ReadRow read;
  pointwise::WriteRow write;
  bool is_direct;  // rows of it are rows of numbers
  bool is_fixed;   // the same for all rows
};

struct HostRows {
  RowCall call;
  HostOperand along[kBuffers];
  HostOperand numbers[2];
  bool is_resident;  // a row is one block
  bool has_result, has_sums;
  double eps;
  int64_t number_bytes;
  int64_t rows_of_chunk;
  char* sums;  // of gamma, then of beta, for each chunk

  int64_t chunks() const { return (call.count() + rows_of_chunk - 1) / rows_of_chunk; }
};

HostRows host_rows_of(const RowCall& call, Class type);

class RowBlocks {
 public:
  RowBlocks(const HostRows& rows, int64_t row);

  // Moves to the next row.
  void advance() {
    ++row_;
    cursor_.advance(1);
  }
  void load(int64_t at, int64_t n) {
    for (int i = 0; i <= rows_.call.inputs; ++i) {
      const HostOperand& operand = rows_.along[i];
      if (operand.is_direct) along[i] = operand.data + (cursor_.offset(i) + at) * operand.bytes;
      else if (i < rows_.call.inputs) gather(i, at, n);
    }
  }
  void store(int64_t at, int64_t n) {
    if (!rows_.along[rows_.call.inputs].is_direct) scatter(at, n);
  }
  void read_numbers(void* numbers, int count) const;
  void write_numbers(const void* numbers, int count) const;

  void* along[kBuffers];  // of the block: the inputs, then the result

 private:
  void gather(int operand, int64_t at, int64_t n);
  void scatter(int64_t at, int64_t n);

  const HostRows& rows_;
  int64_t row_;
  pointwise::Cursor cursor_;
  bool has_[kBuffers] = {};  // a row that is the same for all
  // A line longer than a block, so that places of the same number do not compete for the same lines of the
  // cache.
  alignas(64) char buffers_[kBuffers][kBlock * 8 + 64];
};

}  // namespace npu::rows
