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
  int number = -1;  // among the tensors of the call; -1: there is none
  int64_t bytes;    // of an element
  pointwise::ReadRow read;
  pointwise::WriteRow write;
  bool is_direct;  // rows of it are rows of numbers, or it is of numbers
  bool is_fixed;   // the same for all rows
};

// All of a call but the addresses of its tensors.
struct HostRows {
  Nest rows, columns;
  int inputs;
  HostOperand along[kBuffers];
  HostOperand numbers[2];
  bool is_resident;  // a row is one block
  bool has_result, has_sums;
  double eps;
  int64_t number_bytes;
  int64_t rows_of_chunk;

  int64_t count() const { return rows.numel; }
  int64_t width() const { return columns.numel; }
  int64_t chunks() const { return (count() + rows_of_chunk - 1) / rows_of_chunk; }
};

HostRows host_rows_of(const OpCall& call, const RowCall& divided, Class type);

// The addresses of a launch.
struct RowMemory {
  char* along[kBuffers];
  char* numbers[2];  // null: there are none
  char* sums;        // of gamma, then of beta, for each chunk

  RowMemory(const HostRows& rows, const OpCall& call);
};

class RowBlocks {
 public:
  RowBlocks(const HostRows& rows, const RowMemory& memory, int64_t row);

  // Moves to the next row.
  void advance() {
    ++row_;
    if (rows_.rows.rank > 1) return find_row();
    for (int i = 0; i <= rows_.inputs; ++i) starts_[i] += rows_.rows.strides[i][0] * rows_.along[i].bytes;
  }
  // The result, and the first `inputs` of a block.
  void load(int64_t at, int64_t n, int inputs) {
    for (int i = 0; i <= rows_.inputs; ++i) {
      const HostOperand& operand = rows_.along[i];
      if (operand.is_direct) along[i] = starts_[i] + at * operand.bytes;
      else if (i < inputs) gather(i, at, n);
    }
  }
  void store(int64_t at, int64_t n) {
    if (!rows_.along[rows_.inputs].is_direct) scatter(at, n);
  }
  template <class Lane>
  Lane read_number(int i) const {
    const HostOperand& from = rows_.numbers[i];
    const char* place = memory_.numbers[i] + row_ * from.bytes;
    Lane number;
    if (from.is_direct) return *reinterpret_cast<const Lane*>(place);
    return from.read(place, 1, &number, 1), number;
  }
  template <class Lane>
  void write_number(int i, Lane number) const {
    const HostOperand& to = rows_.numbers[i];
    if (!memory_.numbers[i]) return;
    char* place = memory_.numbers[i] + row_ * to.bytes;
    if (to.is_direct) *reinterpret_cast<Lane*>(place) = number;
    else to.write(&number, place, 1, 1);
  }

  void* along[kBuffers];  // of the block: the inputs, then the result

 private:
  void find_row();
  void gather(int operand, int64_t at, int64_t n);
  void scatter(int64_t at, int64_t n);

  const HostRows& rows_;
  const RowMemory& memory_;
  int64_t row_;
  pointwise::Cursor cursor_;  // where rows have several axes
  char* starts_[kBuffers];    // of the row
  bool has_[kBuffers] = {};  // a row that is the same for all
  // A line longer than a block, so that places of the same number do not compete for the same lines of the
  // cache.
  alignas(64) char buffers_[kBuffers][kBlock * 8 + 64];
};

}  // namespace npu::rows
