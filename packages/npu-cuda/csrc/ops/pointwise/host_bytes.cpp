// Logic and arithmetic of rows of bytes: bools, int8 and uint8. As numbers of their class they would be int64, of eight
// times the bytes. Sums and differences have the same last byte either way.
#include <algorithm>
#include <cstring>
#include <utility>

#include "ops/pointwise/host_bytes.h"
#include "ops/pointwise/host_kernels.h"
#include "ops/pointwise/nest.h"
#include "ops/pointwise/pointwise.h"
#include "ops/threads.h"

namespace npu::pointwise {
namespace {

constexpr DType kBool{6, 8, 1}, kInt8{0, 8, 1}, kUint8{1, 8, 1};
constexpr int64_t kLeastOfAThread = 262144;
constexpr int64_t kLeastRow = 64;  // shorter ones are read with those behind them by the kernel of int64
constexpr int64_t kMostOfOne = 4096;  // elements of a row for which one is repeated

struct And { template <class V> static NPU_INLINE V of(V x, V y) { return x & y; } };
struct Or { template <class V> static NPU_INLINE V of(V x, V y) { return x | y; } };
struct Xor { template <class V> static NPU_INLINE V of(V x, V y) { return x ^ y; } };
struct Invert { template <class V> static NPU_INLINE V of(V x, V) { return ~x; } };
struct IsZero { template <class V> static NPU_INLINE V of(V x, V) { return x ^ 1; } };
struct Plus { template <class V> static NPU_INLINE V of(V x, V y) { return x + y; } };
struct Minus { template <class V> static NPU_INLINE V of(V x, V y) { return x - y; } };

// `kTruth`: 0 stays 0, and everything else is 1.
template <class F, bool kIsTruth, int kBytes>
struct Vectors {
  using V = typename VectorOf<uint8_t, kBytes>::type;
  using Unaligned = typename VectorOf<uint8_t, kBytes>::unaligned;

  static NPU_INLINE V load(const uint8_t* from) {
    const V x = *reinterpret_cast<const Unaligned*>(from);
    if constexpr (kIsTruth) return V(x != 0) & 1;
    else return x;
  }

  static NPU_INLINE void step(const uint8_t* x, const uint8_t* y, uint8_t* out) {
    *reinterpret_cast<Unaligned*>(out) = F::of(load(x), load(y));
  }

  static NPU_INLINE void run(const uint8_t* x, const uint8_t* y, uint8_t* out, int64_t n) {
    const int64_t rest = n % kBytes, whole = n - rest;
    for (int64_t i = 0; i < whole; i += kBytes) step(x + i, y + i, out + i);
    if (rest == 0) return;
    uint8_t last[3][kBytes] = {};
    std::memcpy(last[0], x + whole, size_t(rest));
    std::memcpy(last[1], y + whole, size_t(rest));
    step(last[0], last[1], last[2]);
    std::memcpy(out + whole, last[2], size_t(rest));
  }
};

template <class F, bool kIsTruth>
struct Computed {
  template <int kBytes>
  using Loop = Vectors<F, kIsTruth, kBytes>;
};

// Whether all operands are bytes, and rows of them or one that stands for a row.
bool are_rows_of_bytes(const OpCall& call, bool takes_bools) {
  for (int i = 0; i < call.num_inputs + call.num_outputs; ++i) {
    const DType dtype = operand_of(call, i).dtype;
    const bool is_number = dtype == kInt8 || dtype == kUint8;
    if (!is_number && !(takes_bools && dtype == kBool)) return false;
  }
  if (call.outputs[0].numel == 0) return false;
  const Nest nest = nest_of(call);
  if (nest.rank > 1 && nest.shape[0] < kLeastRow) return false;
  for (int i = 0; i < nest.operands; ++i) {
    const bool is_one = i < call.num_inputs && nest.strides[i][0] == 0;
    if (nest.strides[i][0] != 1 && !is_one) return false;
  }
  return true;
}

using Compute = void (*)(const uint8_t* x, const uint8_t* y, uint8_t* out, int64_t n);

// Computes elements of a call of one or two inputs.
void run_rows(const OpCall& call, const Nest& nest, Compute compute, int64_t begin, int64_t end) {
  uint8_t ones[2][kMostOfOne];
  const uint8_t* filled[2] = {};
  int64_t filled_count[2] = {};
  Cursor at(&nest, begin);
  for (int64_t done = begin, n; done < end; done += n) {
    n = std::min(at.left_in_row(), end - done);
    const uint8_t* rows[2];
    for (int i = 0; i < call.num_inputs; ++i) {
      rows[i] = static_cast<const uint8_t*>(call.inputs[i].data) + at.offset(i);
      if (nest.strides[i][0] != 0) continue;
      n = std::min(n, kMostOfOne);
      if (filled[i] != rows[i] || filled_count[i] < n) std::memset(ones[i], *rows[i], size_t(n));
      filled[i] = std::exchange(rows[i], ones[i]);
      filled_count[i] = n;
    }
    compute(rows[0], rows[call.num_inputs - 1], static_cast<uint8_t*>(call.outputs[0].data) + at.offset(call.num_inputs), n);
    at.advance(n);
  }
}

// The launch of an op in int64, which takes bytes as they are where it can; where bools are the result, any number
// but 0 is 1.
template <class Fn, class F>
Status launch_bytes(const OpCall& call) {
  constexpr bool takes_bools = Fn::row.classes != kAny && !std::is_same_v<F, Invert>;
  static const auto numbers = widest<uint8_t, Computed<F, false>::template Loop>();
  static const auto truths = widest<uint8_t, Computed<F, true>::template Loop>();
  bool is_plain = true;
  if constexpr (requires(const typename Fn::Attrs attrs) { attrs.alpha; }) is_plain = attrs_of_call<Fn>(call).alpha == 1;
  if (!is_plain || !are_rows_of_bytes(call, takes_bools)) return launch<Fn, kInt64>(call);
  const Nest nest = nest_of(call);
  const Compute compute = call.outputs[0].dtype == kBool ? truths : numbers;
  parallel_for(call.outputs[0].numel, kLeastOfAThread,
               [&](int64_t begin, int64_t end) { run_rows(call, nest, compute, begin, end); });
  return {};
}

}  // namespace

LaunchOfBytes launch_of_bytes(OpKind kind) {
  using namespace op;
  static const std::pair<OpKind, LaunchOfBytes> all[] = {
      {LogicalAnd::row.kind, launch_bytes<LogicalAnd, And>},    {LogicalOr::row.kind, launch_bytes<LogicalOr, Or>},
      {LogicalXor::row.kind, launch_bytes<LogicalXor, Xor>},    {LogicalNot::row.kind, launch_bytes<LogicalNot, IsZero>},
      {BitwiseAnd::row.kind, launch_bytes<BitwiseAnd, And>},    {BitwiseOr::row.kind, launch_bytes<BitwiseOr, Or>},
      {BitwiseXor::row.kind, launch_bytes<BitwiseXor, Xor>},    {BitwiseNot::row.kind, launch_bytes<BitwiseNot, Invert>},
      {EltwiseAdd::row.kind, launch_bytes<EltwiseAdd, Plus>},   {Sub::row.kind, launch_bytes<Sub, Minus>}};
  for (const auto& [known, launch] : all) {
    if (known == kind) return launch;
  }
  return nullptr;
}

}  // namespace npu::pointwise
