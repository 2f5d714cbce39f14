#include "ops/pointwise/host_call.h"

#include <algorithm>
#include <utility>

#include "ops/pointwise/pointwise.h"
#include "ops/threads.h"

namespace npu::pointwise {
namespace {

constexpr int64_t kBlock = 1024;
constexpr int64_t kLongRow = 128;  // shorter ones share a block
constexpr int64_t kShortRow = 16;  // shorter ones are not worth a call of a reader
constexpr int64_t kMostBytes = 8;         // of a number

struct Operand {
  char* data;
  int64_t bytes;  // of an element
  ReadRow read;
  WriteRow write;
  bool is_constant;  // its number fills a buffer from the start
  bool is_direct;    // rows of it are rows of numbers
};

struct HostCall {
  Nest nest;
  int inputs;
  int64_t number_bytes;
  ComputeRow compute;
  const void* attrs;
  Operand operands[kMaxOperands];
  bool needs_buffers;
};

Element stored_as(Class type) {
  return type == kFloat32 ? Element::Float32 : type == kFloat64 ? Element::Float64 : Element::Int64;
}

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

HostCall host_call_of(const OpCall& call, Class type, ComputeRow compute, const void* attrs) {
  HostCall made{nest_of(call), call.num_inputs, type == kFloat32 ? 4 : 8, compute, attrs, {}, false};
  lengthen_rows(&made.nest);
  for (int i = 0; i < made.nest.operands; ++i) {
    const TensorDesc& tensor = operand_of(call, i);
    const Element element = element_of(tensor.dtype);
    const bool is_constant = i < call.num_inputs && made.nest.is_constant(i);
    const bool is_direct = !is_constant && element == stored_as(type) && made.nest.strides[i][0] == 1;
    made.operands[i] = {static_cast<char*>(tensor.data), item_bytes(tensor.dtype), reader(element, type),
                        writer(element, type), is_constant, is_direct};
    made.needs_buffers |= !is_direct;
  }
  return made;
}

// Walks a range of the elements of a call.
class Walk {
 public:
  Walk(const HostCall& call, int64_t begin, int64_t end)
      : call_(call), cursor_(&call.nest, begin), left_(end - begin) {
    for (int i = 0; i < call.nest.operands; ++i) rows_[i] = buffers_[i];
    for (int i = 0; i < call.inputs; ++i) {
      if (call.operands[i].is_constant) call.operands[i].read(call.operands[i].data, 0, buffers_[i], kBlock);
    }
  }

  void run() {
    for (; left_ > 0; left_ -= count_) {
      const int64_t limit = call_.needs_buffers ? std::min(kBlock, left_) : left_;
      const int64_t row = cursor_.left_in_row();
      const bool is_one_row = row >= std::min(kLongRow, limit);
      count_ = is_one_row ? std::min(row, limit) : std::min(kBlock, left_);
      is_one_row ? compute_row() : compute_rows();
    }
  }

 private:
  void compute_row() {
    read(cursor_, 0, count_, true);
    call_.compute(rows_, rows_ + call_.inputs, count_, call_.attrs);
    write(cursor_, 0, count_, true);
    cursor_.advance(count_);
  }

  void compute_rows() {
    const Cursor start = cursor_;
    each_row([&](const Cursor& at, int64_t done, int64_t n) { read(at, done, n, false); });
    call_.compute(rows_, rows_ + call_.inputs, count_, call_.attrs);
    cursor_ = start;
    each_row([&](const Cursor& at, int64_t done, int64_t n) { write(at, done, n, false); });
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

  char* place(const Cursor& at, int i) const {
    return call_.operands[i].data + at.offset(i) * call_.operands[i].bytes;
  }
  int64_t stride(int i) const { return call_.nest.strides[i][0]; }

  void read(const Cursor& at, int64_t done, int64_t n, bool is_one_row) {
    for (int i = 0; i < call_.nest.operands; ++i) {
      const Operand& operand = call_.operands[i];
      const bool is_direct = operand.is_direct && is_one_row;
      rows_[i] = is_direct ? place(at, i) : buffers_[i];
      if (is_direct || operand.is_constant || i >= call_.inputs) continue;
      operand.read(place(at, i), stride(i), buffers_[i] + done * call_.number_bytes, n);
    }
  }

  void write(const Cursor& at, int64_t done, int64_t n, bool is_one_row) {
    for (int i = call_.inputs; i < call_.nest.operands; ++i) {
      const Operand& operand = call_.operands[i];
      if (operand.is_direct && is_one_row) continue;
      operand.write(buffers_[i] + done * call_.number_bytes, place(at, i), stride(i), n);
    }
  }

  const HostCall& call_;
  Cursor cursor_;
  int64_t left_, count_ = 0;
  void* rows_[kMaxOperands];
  // A line longer than a block, so that places of the same number do not compete for the same lines of the cache.
  alignas(64) char buffers_[kMaxOperands][kBlock * kMostBytes + 64];
};

}  // namespace

Status run_on_host(const OpCall& call, Class type, ComputeRow compute, const void* attrs) {
  constexpr int64_t least_of_a_thread = 32768;
  const int64_t n = call.outputs[0].numel;
  if (n == 0) return {};
  void* rows[kMaxOperands];
  if (n <= least_of_a_thread && are_rows(call, type, n, rows)) {
    compute(rows, rows + call.num_inputs, n, attrs);
    return {};
  }
  const HostCall host_call = host_call_of(call, type, compute, attrs);
  parallel_for(n, least_of_a_thread,
               [&](int64_t begin, int64_t end) { Walk(host_call, begin, end).run(); });
  return {};
}

}  // namespace npu::pointwise
