#include "ops/pointwise/host_call.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "ops/pointwise/pointwise.h"
#include "ops/threads.h"

namespace npu::pointwise {
namespace {

constexpr int64_t kLongRow = 128;          // shorter ones always share a block
constexpr int64_t kShortRow = 16;          // shorter ones are not worth a call of a reader
constexpr int64_t kMostBytes = 8;          // of a number
constexpr int64_t kLeastOfAThread = 32768; // elements
constexpr int64_t kLineBytes = 64;

// A block in the first cache. A line longer than it needs, so that places of the same number in several of them do not
// compete for the same lines of the cache.
struct alignas(kLineBytes) Buffer {
  char bytes[kBlock * kMostBytes + kLineBytes];
};

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

// Computes n numbers of each row.
void run_steps(const HostCall& call, void* const* rows, int64_t n) {
  void* of_step[kMaxOperands];
  for (const HostStep& step : call.steps) {
    for (int i = 0; i < step.num_inputs + step.num_outputs; ++i) of_step[i] = rows[step.rows[i]];
    if (step.compute) step.compute(of_step, of_step + step.num_inputs, n, step.attrs);
    else if (of_step[0] != of_step[1]) std::memcpy(of_step[1], of_step[0], size_t(n * call.operands[0].number_bytes));
  }
}

// Walks a range of the elements of a call.
class Walk {
 public:
  Walk(const HostCall& host_call, void* const* data, int64_t begin, int64_t end)
      : call_(host_call), cursor_(&host_call.nest, begin), place_(begin), end_(end) {
    for (int i = 0; i < kMaxRows; ++i) rows_[i] = buffers_[i].bytes;
    for (int i = 0; i < call_.nest.operands; ++i) {
      data_[i] = static_cast<char*>(data[i]);
      if (call_.operands[i].is_constant) call_.operands[i].read(data_[i], 0, buffers_[i].bytes, kBlock);
    }
  }

  void run() {
    const int64_t row = call_.nest.shape[0], most = call_.joins_rows ? std::max<int64_t>(1, kBlock / row) * row : row;
    for (; place_ < end_; place_ += count_) {
      const int64_t left = cursor_.left_in_row();
      count_ = std::min(end_ - place_, left < row ? left : most);
      if (call_.needs_blocks) count_ = std::min(count_, kBlock);
      read();
      run_steps(call_, rows_, count_);
      write();
      // In place: what is copied right after it was written waits for all that was written before.
      if (call_.joins_rows) std::construct_at(&cursor_, &call_.nest, place_ + count_);
      else cursor_.advance(count_);
    }
  }

 private:
  char* place(const Cursor& at, int i) const { return data_[i] + at.offset(i) * call_.operands[i].bytes; }
  int64_t stride(int i) const { return call_.nest.strides[i][0]; }
  // The elements of the block are one row.
  bool is_row(int i) const { return !call_.joins_rows || call_.operands[i].is_whole; }
  bool is_direct(int i) const { return call_.operands[i].is_direct && is_row(i); }

  // Calls f(cursor, done, n) for the rows of the block.
  template <class F>
  void each_row(F f) const {
    Cursor at = cursor_;
    for (int64_t done = 0, n; done < count_; done += n) {
      n = std::min(at.left_in_row(), count_ - done);
      f(at, done, n);
      at.advance(n);
    }
  }

  void read_elements(const Cursor& at, int i, void* numbers, int64_t n) const {
    const HostOperand& operand = call_.operands[i];
    if (i > 0 || !call_.random) return operand.read(place(at, i), stride(i), numbers, n);
    read_random(*call_.random, at.offset(i), stride(i), operand.number_bytes == 4 ? kFloat32 : kFloat64, numbers, n);
  }

  void read() {
    bool has_rows = false;
    for (int i = 0; i < call_.nest.operands; ++i) {
      const HostOperand& operand = call_.operands[i];
      rows_[i] = is_direct(i) ? place(cursor_, i) : buffers_[i].bytes;
      if (is_direct(i) || operand.is_constant || i >= call_.inputs || has_block(i)) continue;
      if (is_copy() && is_direct(1) && !stays(i)) rows_[i] = place(cursor_, 1);
      if (is_row(i)) read_elements(cursor_, i, rows_[i], count_);
      else has_rows = wants_rows_[i] = true;
    }
    if (is_copy() && !is_direct(1)) rows_[1] = rows_[0];
    if (!has_rows) return;
    each_row([&](const Cursor& at, int64_t done, int64_t n) {
      for (int i = 0; i < call_.inputs; ++i) {
        if (wants_rows_[i]) read_elements(at, i, row_from(i, done), n);
      }
    });
    std::fill_n(wants_rows_, call_.inputs, false);
  }

  bool is_copy() const { return call_.steps[0].compute == nullptr; }
  // Other blocks may have the same elements of it.
  bool stays(int i) const { return call_.joins_rows ? call_.operands[i].repeats : stride(i) == 0; }

  // The row has these elements from an earlier block.
  bool has_block(int i) {
    const char* from = place(cursor_, i);
    if (stays(i) && from == filled_[i] && count_ <= filled_count_[i]) return true;
    filled_[i] = from;
    filled_count_[i] = count_;
    return false;
  }

  void write() const {
    bool has_rows = false;
    for (int i = call_.inputs; i < call_.nest.operands; ++i) {
      if (is_direct(i)) continue;
      if (is_row(i)) call_.operands[i].write(rows_[i], place(cursor_, i), stride(i), count_);
      else has_rows = true;
    }
    if (!has_rows) return;
    each_row([&](const Cursor& at, int64_t done, int64_t n) {
      for (int i = call_.inputs; i < call_.nest.operands; ++i) {
        if (!is_row(i)) call_.operands[i].write(row_from(i, done), place(at, i), stride(i), n);
      }
    });
  }

  char* row_from(int i, int64_t done) const {
    return static_cast<char*>(rows_[i]) + done * call_.operands[i].number_bytes;
  }

  const HostCall& call_;
  Cursor cursor_;
  int64_t place_, end_, count_ = 0;
  char* data_[kMaxOperands];
  void* rows_[kMaxRows];
  bool wants_rows_[kMaxOperands] = {};
  const char* filled_[kMaxOperands] = {};
  int64_t filled_count_[kMaxOperands] = {};
  Buffer buffers_[kMaxRows];
};

// Whether the rows of a window follow one another in each operand.
bool are_one_row(const HostCall& call, int64_t rows, int64_t columns) {
  for (int i = 0; i < call.nest.operands && rows > 1; ++i) {
    if (!call.operands[i].is_constant && call.nest.strides[i][1] != columns) return false;
  }
  return true;
}

// A window whose rows are where they are to be computed.
void run_rows(const HostCall& call, void* const* data, int64_t rows, int64_t columns) {
  Buffer buffers[kMaxRows];
  void* of_block[kMaxRows];
  for (int i = 0; i < kMaxRows; ++i) of_block[i] = buffers[i].bytes;
  for (int i = 0; i < call.nest.operands; ++i) {
    const HostOperand& operand = call.operands[i];
    if (operand.is_constant) operand.read(data[i], 0, of_block[i], std::min(kBlock, columns));
  }
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t column = 0; column < columns; column += kBlock) {
      for (int i = 0; i < call.nest.operands; ++i) {
        const HostOperand& operand = call.operands[i];
        if (operand.is_constant) continue;
        of_block[i] = static_cast<char*>(data[i]) + (row * call.nest.strides[i][1] + column) * operand.bytes;
      }
      run_steps(call, of_block, std::min(kBlock, columns - column));
    }
  }
}

// One row that goes through all axes.
bool is_whole(const Nest& nest, int i) {
  int64_t next = 1;
  for (int axis = 0; axis < nest.rank; next *= nest.shape[axis++]) {
    if (nest.strides[i][axis] != next) return false;
  }
  return true;
}

bool repeats(const Nest& nest, int i) {
  return std::all_of(nest.strides[i] + 1, nest.strides[i] + nest.rank, [](int64_t stride) { return stride == 0; });
}

// What depends on the sizes of the loops.
void choose_blocks(HostCall* made) {
  const int64_t row = made->nest.shape[0];
  made->joins_rows = made->nest.rank > 1;
  for (int i = 0; i < made->nest.operands; ++i) {
    HostOperand& operand = made->operands[i];
    operand.is_whole = is_whole(made->nest, i);
    operand.repeats = repeats(made->nest, i);
    made->joins_rows &= row < kLongRow || (row <= kBlock / 2 && (operand.is_whole || operand.repeats));
  }
  made->needs_blocks |= made->joins_rows;
}

// Where each operand of a call starts.
struct Starts {
  explicit Starts(const OpCall& call) {
    for (int i = 0; i < call.num_inputs + call.num_outputs; ++i) data[i] = operand_of(call, i).data;
  }
  void* data[kMaxOperands];
};

}  // namespace

HostCall host_call_of(const OpCall& call, const Class* types, std::span<const HostStep> steps) {
  Nest nest = nest_of(call);
  lengthen_rows(&nest);
  HostCall made = host_call_of(nest, call, types, steps);
  choose_blocks(&made);
  return made;
}

HostCall host_call_of(const Nest& nest, const OpCall& call, const Class* types, std::span<const HostStep> steps) {
  HostCall made{nest, call.num_inputs, steps, {}, steps.size() > 1, false};
  made.has_rows = true;
  for (int i = 0; i < made.nest.operands; ++i) {
    const TensorDesc& tensor = operand_of(call, i);
    const Element element = element_of(tensor.dtype);
    const bool is_constant = i < call.num_inputs && made.nest.is_constant(i);
    const bool is_direct = !is_constant && element == stored_as(types[i]) && made.nest.strides[i][0] == 1;
    made.operands[i] = {item_bytes(tensor.dtype), types[i] == kFloat32 ? 4 : 8, reader(element, types[i]),
                        writer(element, types[i]), is_constant, is_direct, false, false};
    made.needs_blocks |= !is_direct;
    made.has_rows &= is_direct || is_constant;
  }
  return made;
}

void run_on_host(const HostCall& host_call, const OpCall& call) {
  const Starts starts(call);
  parallel_for(call.outputs[0].numel, kLeastOfAThread,
               [&](int64_t begin, int64_t end) { Walk(host_call, starts.data, begin, end).run(); });
}

void run_window(const HostCall& host_call, void* const* data, int64_t rows, int64_t columns) {
  if (host_call.has_rows) {
    if (are_one_row(host_call, rows, columns)) return run_rows(host_call, data, 1, rows * columns);
    if (columns > kBlock / 2) return run_rows(host_call, data, rows, columns);
  }
  HostCall window = host_call;
  window.nest.shape[0] = columns;
  window.nest.shape[1] = rows;
  choose_blocks(&window);
  Walk(window, data, 0, rows * columns).run();
}

Status run_on_host(const OpCall& call, Class type, ComputeRow compute, const void* attrs) {
  const int64_t n = call.outputs[0].numel;
  if (n == 0) return {};
  void* rows[kMaxOperands];
  if (n <= kLeastOfAThread && compute && are_rows(call, type, n, rows)) {
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
  Walk(host_call_of(call, one.types, {&one.step, 1}), Starts(call).data, begin, end).run();
}

}  // namespace npu::pointwise
