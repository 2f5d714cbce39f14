#include "ops/rows/row_blocks.h"

#include <algorithm>

namespace npu::rows {
namespace {

constexpr int64_t kChunkNumbers = 32768;  // worth a thread of their own
constexpr int64_t kMostChunks = 16;       // of sums, each of which has memory

HostOperand operand_of(const OpCall& call, const TensorDesc& tensor, Class type) {
  const Element element = pointwise::element_of(tensor.dtype);
  int number = 0;
  while (&pointwise::operand_of(call, number) != &tensor) ++number;
  return {number,
          item_bytes(tensor.dtype),
          pointwise::reader(element, type),
          pointwise::writer(element, type),
          element == (type == pointwise::kFloat32 ? Element::Float32 : Element::Float64),
          false};
}

// Columns that follow one another, through all axes.
bool is_row(const Nest& columns, int i) {
  int64_t next = 1;
  for (int axis = 0; axis < columns.rank; next *= columns.shape[axis++]) {
    if (columns.shape[axis] != 1 && columns.strides[i][axis] != next) return false;
  }
  return true;
}

}  // namespace

HostRows host_rows_of(const OpCall& call, const RowCall& divided, Class type) {
  HostRows made{};
  made.rows = divided.rows;
  made.columns = divided.columns;
  made.inputs = divided.inputs;
  made.number_bytes = type == pointwise::kFloat32 ? 4 : 8;
  bool has_buffers = false;
  for (int i = 0; i <= divided.inputs; ++i) {
    made.along[i] = operand_of(call, *divided.along[i], type);
    made.along[i].is_direct &= is_row(made.columns, i);
    made.along[i].is_fixed = made.rows.is_constant(i);
    has_buffers |= !made.along[i].is_direct;
  }
  for (int i = 0; i < 2; ++i) {
    if (divided.numbers[i]) made.numbers[i] = operand_of(call, *divided.numbers[i], type);
  }
  made.is_resident = !has_buffers || made.width() <= kBlock;
  const int64_t share = (made.count() + kMostChunks - 1) / kMostChunks;
  made.rows_of_chunk = std::max(share, kChunkNumbers / made.width() + 1);
  return made;
}

RowMemory::RowMemory(const HostRows& rows, const OpCall& call) : numbers{}, sums(static_cast<char*>(call.workspace)) {
  const auto place = [&](const HostOperand& operand) {
    return static_cast<char*>(pointwise::operand_of(call, operand.number).data);
  };
  for (int i = 0; i <= rows.inputs; ++i) along[i] = place(rows.along[i]);
  for (int i = 0; i < 2; ++i) {
    if (rows.numbers[i].number >= 0) numbers[i] = place(rows.numbers[i]);
  }
}

RowBlocks::RowBlocks(const HostRows& rows, const RowMemory& memory, int64_t row)
    : rows_(rows), memory_(memory), row_(row), cursor_(&rows.rows, row) {
  for (int i = 0; i < kBuffers; ++i) along[i] = buffers_[i];
  for (int i = 0; i <= rows.inputs; ++i) starts_[i] = memory.along[i] + cursor_.offset(i) * rows.along[i].bytes;
}

void RowBlocks::find_row() {
  cursor_.advance(1);
  for (int i = 0; i <= rows_.inputs; ++i) starts_[i] = memory_.along[i] + cursor_.offset(i) * rows_.along[i].bytes;
}

void RowBlocks::gather(int operand, int64_t at, int64_t n) {
  const HostOperand& from = rows_.along[operand];
  if (from.is_fixed && rows_.is_resident && has_[operand]) return;
  has_[operand] = true;
  const Nest& columns = rows_.columns;
  const char* row = starts_[operand];
  pointwise::Cursor place(&columns, at);
  for (int64_t done = 0; done < n;) {
    const int64_t run = std::min(place.left_in_row(), n - done);
    from.read(row + place.offset(operand) * from.bytes, columns.strides[operand][0],
              buffers_[operand] + done * rows_.number_bytes, run);
    place.advance(run);
    done += run;
  }
}

void RowBlocks::scatter(int64_t at, int64_t n) {
  const int result = rows_.inputs;
  const HostOperand& to = rows_.along[result];
  const Nest& columns = rows_.columns;
  char* row = starts_[result];
  pointwise::Cursor place(&columns, at);
  for (int64_t done = 0; done < n;) {
    const int64_t run = std::min(place.left_in_row(), n - done);
    to.write(buffers_[result] + done * rows_.number_bytes, row + place.offset(result) * to.bytes,
             columns.strides[result][0], run);
    place.advance(run);
    done += run;
  }
}

}  // namespace npu::rows
