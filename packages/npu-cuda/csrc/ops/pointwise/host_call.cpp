#include "ops/pointwise/host_call.h"

#include <algorithm>
#include <utility>

#include "ops/pointwise/pointwise.h"
#include "ops/threads.h"

namespace npu::pointwise {
namespace {

constexpr int64_t kLongRow = 128;          // shorter ones share a block
constexpr int64_t kShortRow = 16;          // shorter ones are not worth a call of a reader
constexpr int64_t kMostBytes = 8;          // of a number
constexpr int64_t kLeastOfAThread = 32768; // elements

// The rows of a call whose operands are contiguous numbers of one shape: most calls, which need no nest. What broadcasts
// to a shape of as many elements has them in the same order.
bool are_rows(const OpCall& call, Class type, int64_t n, void** rows) {
  constexpr DType int64{0, 64, 1}, float64{2, 64, 1};
  const DType stored = type == kFloat32 ? npu::kFloat32 : type == kFloat64 ? float64 : int64;
  const auto is_row = [&](const TensorDesc& tensor) {
    *rows++ = tensor.data;
    return tensor.dtype == stored && is_contiguous(tensor) && tensor.numel == n;
  };
  return std::all_of(call.inputs, call.inputs + call.num_inputs, is_row) &&
         std::all_of(call.outputs, call.outputs + call.num_outputs, is_row);
}

// Has the longest axis innermost where the innermost one is short. The order of elements is of no matter.
void lengthen_rows(Nest* nest) {
  int longest = 0;
  for (int axis = 1; axis < nest->rank; ++axis) {
    if (nest->shape[axis] > nest->shape[longest]) longest = axis;
  }
  if (nest->shape[0] >= kShortRow || longest == 0) return;
  std::swap(nest->shape[0], nest->shape[longest]);
  for (int i = 0; i < nest->operands; ++i) std::swap(nest->strides[i][0], nest->strides[i][longest]);
}

// Walks a range of the elements of a call.
class Walk {
 public:
  Walk(const HostCall& host_call, const OpCall& call, int64_t begin, int64_t end)
      : call_(host_call), cursor_(&host_call.nest, begin), left_(end - begin) {
    for (int i = 0; i < kMaxRows; ++i) rows_[i] = buffers_[i];
    for (int i = 0; i < call_.nest.operands; ++i) {
      data_[i] = static_cast<char*>(operand_of(call, i).data);
      if (call_.operands[i].is_constant) call_.operands[i].read(data_[i], 0, buffers_[i], kBlock);
    }
  }

  void run() {
    for (; left_ > 0; left_ -= count_) {
      const int64_t limit = call_.needs_blocks ? std::min(kBlock, left_) : left_;
      const int64_t row = cursor_.left_in_row();
      const bool is_one_row = row >= std::min(kLongRow, limit);
      count_ = is_one_row ? std::min(row, limit) : std::min(kBlock, left_);
      is_one_row ? compute_row() : compute_rows();
    }
  }

 private:
  void compute_row() {
    read(cursor_, 0, count_, true);
    compute();
    write(cursor_, 0, count_, true);
    cursor_.advance(count_);
  }

  void compute_rows() {
    const Cursor start = cursor_;
    each_row([&](const Cursor& at, int64_t done, int64_t n) { read(at, done, n, false); });
    compute();
    cursor_ = start;
    each_row([&](const Cursor& at, int64_t done, int64_t n) { write(at, done, n, false); });
  }

  void compute() {
    void* rows[kMaxOperands];
    for (const HostStep& step : call_.steps) {
      for (int i = 0; i < step.num_inputs + step.num_outputs; ++i) rows[i] = rows_[step.rows[i]];
      step.compute(rows, rows + step.num_inputs, count_, step.attrs);
    }
  }

  // Moves the cursor over the block.
  template <class F>
  void each_row(F f) {
    for (int64_t done = 0; done < count_;) {
      const int64_t n = std::min(cursor_.left_in_row(), count_ - done);
      f(cursor_, done, n);
      cursor_.advance(n);
      done += n;
    }
  }

  char* place(const Cursor& at, int i) const { return data_[i] + at.offset(i) * call_.operands[i].bytes; }
  int64_t stride(int i) const { return call_.nest.strides[i][0]; }

  void read(const Cursor& at, int64_t done, int64_t n, bool is_one_row) {
    for (int i = 0; i < call_.nest.operands; ++i) {
      const HostOperand& operand = call_.operands[i];
      const bool is_direct = operand.is_direct && is_one_row;
      rows_[i] = is_direct ? place(at, i) : buffers_[i];
      if (is_direct || operand.is_constant || i >= call_.inputs) continue;
      if (i == 0 && call_.random) {
        const Class type = operand.number_bytes == 4 ? kFloat32 : kFloat64;
        read_random(*call_.random, at.offset(i), stride(i), type, buffers_[i] + done * operand.number_bytes, n);
        continue;
      }
      operand.read(place(at, i), stride(i), buffers_[i] + done * operand.number_bytes, n);
    }
  }

  void write(const Cursor& at, int64_t done, int64_t n, bool is_one_row) {
    for (int i = call_.inputs; i < call_.nest.operands; ++i) {
      const HostOperand& operand = call_.operands[i];
      if (operand.is_direct && is_one_row) continue;
      operand.write(buffers_[i] + done * operand.number_bytes, place(at, i), stride(i), n);
    }
  }

  const HostCall& call_;
  Cursor cursor_;
  int64_t left_, count_ = 0;
  char* data_[kMaxOperands];
  void* rows_[kMaxRows];
  // A line longer than a block, so that places of the same number do not compete for the same lines of the cache.
  alignas(64) char buffers_[kMaxRows][kBlock * kMostBytes + 64];
};

}  // namespace

HostCall host_call_of(const OpCall& call, const Class* types, std::span<const HostStep> steps) {
  HostCall made{nest_of(call), call.num_inputs, steps, {}, steps.size() > 1};
  lengthen_rows(&made.nest);
  for (int i = 0; i < made.nest.operands; ++i) {
    const TensorDesc& tensor = operand_of(call, i);
    const Element element = element_of(tensor.dtype);
    const bool is_constant = i < call.num_inputs && made.nest.is_constant(i);
    const bool is_direct = !is_constant && element == stored_as(types[i]) && made.nest.strides[i][0] == 1;
    made.operands[i] = {item_bytes(tensor.dtype), types[i] == kFloat32 ? 4 : 8, reader(element, types[i]),
                        writer(element, types[i]), is_constant, is_direct};
    made.needs_blocks |= !is_direct;
  }
  return made;
}

void run_on_host(const HostCall& host_call, const OpCall& call) {
  parallel_for(call.outputs[0].numel, kLeastOfAThread,
               [&](int64_t begin, int64_t end) { Walk(host_call, call, begin, end).run(); });
}

Status run_on_host(const OpCall& call, Class type, ComputeRow compute, const void* attrs) {
  const int64_t n = call.outputs[0].numel;
  if (n == 0) return {};
  void* rows[kMaxOperands];
  if (n <= kLeastOfAThread && are_rows(call, type, n, rows)) {
    compute(rows, rows + call.num_inputs, n, attrs);
    return {};
  }
  const OneStep one(call, type, compute, attrs);
  run_on_host(host_call_of(call, one.types, {&one.step, 1}), call);
  return {};
}

void run_on_host(const OpCall& call, Class type, ComputeRow compute, const void* attrs, int64_t begin, int64_t end) {
  void* rows[kMaxOperands];
  if (are_rows(call, type, call.outputs[0].numel, rows)) {
    const int64_t offset = begin * (type == kFloat32 ? 4 : 8);
    for (int i = 0; i < call.num_inputs + call.num_outputs; ++i) rows[i] = static_cast<char*>(rows[i]) + offset;
    return compute(rows, rows + call.num_inputs, end - begin, attrs);
  }
  const OneStep one(call, type, compute, attrs);
  Walk(host_call_of(call, one.types, {&one.step, 1}), call, begin, end).run();
}

}  // namespace npu::pointwise
