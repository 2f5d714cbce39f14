#include "ops/rows/row_blocks.h"

#include <algorithm>

namespace npu::rows {
namespace {

constexpr int64_t kChunkNumbers = 32768;  // worth a thread of their own
constexpr int64_t kMostChunks = 16;       // of sums, each of which has memory

HostOperand operand_of(const TensorDesc& tensor, Class type) {
  const Element element = pointwise::element_of(tensor.dtype);
  return {static_cast<char*>(tensor.data),
          item_bytes(tensor.dtype),
          pointwise::reader(element, type),
          pointwise::writer(element, type),
          element == (type == pointwise::kFloat32 ? Element::Float32 : Element::Float64),
          false};
}

}  // namespace

HostRows host_rows_of(const RowCall& call, Class type) {
  HostRows made{};
  made.call = call;
  made.number_bytes = type == pointwise::kFloat32 ? 4 : 8;
  bool has_buffers = false;
  for (int i = 0; i <= call.inputs; ++i) {
    made.along[i] = operand_of(*call.along[i], type);
    const bool is_row = call.columns.rank == 1 && (call.columns.strides[i][0] == 1 || call.width() == 1);
    made.along[i].is_direct &= is_row;
    made.along[i].is_fixed = call.rows.is_constant(i);
    has_buffers |= !made.along[i].is_direct;
  }
  for (int i = 0; i < 2; ++i) {
    if (call.numbers[i]) made.numbers[i] = operand_of(*call.numbers[i], type);
  }
  made.is_resident = !has_buffers || call.width() <= kBlock;
  const int64_t share = (call.count() + kMostChunks - 1) / kMostChunks;
  made.rows_of_chunk = std::max(share, kChunkNumbers / call.width() + 1);
  return made;
}

RowBlocks::RowBlocks(const HostRows& rows, int64_t row)
    : rows_(rows), row_(row), cursor_(&rows.call.rows, row) {
  for (int i = 0; i < kBuffers; ++i) along[i] = buffers_[i];
}

void RowBlocks::gather(int operand, int64_t at, int64_t n) {
  const HostOperand& from = rows_.along[operand];
  if (from.is_fixed && rows_.is_resident && has_[operand]) return;
  has_[operand] = true;
  const Nest& columns = rows_.call.columns;
  const char* row = from.data + cursor_.offset(operand) * from.bytes;
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
  const int result = rows_.call.inputs;
  const HostOperand& to = rows_.along[result];
  const Nest& columns = rows_.call.columns;
  char* row = to.data + cursor_.offset(result) * to.bytes;
  pointwise::Cursor place(&columns, at);
  for (int64_t done = 0; done < n;) {
    const int64_t run = std::min(place.left_in_row(), n - done);
    to.write(buffers_[result] + done * rows_.number_bytes, row + place.offset(result) * to.bytes,
             columns.strides[result][0], run);
    place.advance(run);
    done += run;
  }
}

void RowBlocks::read_numbers(void* numbers, int count) const {
  for (int i = 0; i < count; ++i) {
    const HostOperand& from = rows_.numbers[i];
    from.read(from.data + row_ * from.bytes, 1, static_cast<char*>(numbers) + i * rows_.number_bytes, 1);
  }
}

void RowBlocks::write_numbers(const void* numbers, int count) const {
  for (int i = 0; i < count; ++i) {
    const HostOperand& to = rows_.numbers[i];
    if (to.data)
      to.write(static_cast<const char*>(numbers) + i * rows_.number_bytes, to.data + row_ * to.bytes, 1, 1);
  }
}

}  // namespace npu::rows
