// Logic and arithmetic of contiguous tensors whose elements are bytes: bools, int8 and uint8. As numbers of their class
// they would be int64, of eight times the bytes. Sums and products have the same last byte either way.
#include <cstring>

#include "ops/pointwise/host_kernels.h"
#include "ops/pointwise/pointwise.h"
#include "ops/threads.h"

namespace npu::pointwise {
namespace {

constexpr DType kBool{6, 8, 1}, kInt8{0, 8, 1}, kUint8{1, 8, 1};
constexpr int64_t kLeastOfAThread = 262144;

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

Status check_bytes(const OpCall& call, bool takes_bools) {
  for (int i = 0; i < call.num_inputs + call.num_outputs; ++i) {
    const TensorDesc& tensor = operand_of(call, i);
    const bool is_number = tensor.dtype == kInt8 || tensor.dtype == kUint8;
    if (!is_number && !(takes_bools && tensor.dtype == kBool)) {
      return Status::not_implemented("an operand is " + text_of(tensor) + ", not of bytes");
    }
    if (!is_contiguous(tensor) || tensor.numel != call.outputs[0].numel) {
      return Status::not_implemented("an operand is " + text_of(tensor) + ", not contiguous and of the shape of the result");
    }
  }
  return {};
}

// Numbers are bytes as they are, but where bools are the result: bools in, or the logic of any numbers.
template <class Fn, class F>
struct Kernel {
  static constexpr bool kTakesBools = Fn::row.classes != kAny && !std::is_same_v<F, Invert>;

  static Status supported(const OpCall& call) {
    NPU_TRY((pointwise::supported<Fn, kInt64>(call)));
    if constexpr (requires(const typename Fn::Attrs attrs) { attrs.alpha; }) {
      if (attrs_of_call<Fn>(call).alpha != 1) return Status::not_implemented("alpha is not 1");
    }
    return check_bytes(call, kTakesBools);
  }

  static Status launch(const OpCall& call) {
    static const auto numbers = widest<uint8_t, Computed<F, false>::template Loop>();
    static const auto truths = widest<uint8_t, Computed<F, true>::template Loop>();
    const auto bytes = [&](const TensorDesc& tensor) { return static_cast<uint8_t*>(tensor.data); };
    const uint8_t *x = bytes(call.inputs[0]), *y = bytes(call.inputs[call.num_inputs - 1]);
    uint8_t* const out = bytes(call.outputs[0]);
    const auto compute = call.outputs[0].dtype == kBool ? truths : numbers;
    parallel_for(call.outputs[0].numel, kLeastOfAThread,
                 [&](int64_t begin, int64_t end) { compute(x + begin, y + begin, out + begin, end - begin); });
    return {};
  }

  static KernelPtr make() {
    const std::string id = kernel_name(Fn::row) + ".bytes.host";
    return make_kernel({Fn::row.kind, id, DeviceType::Host, 10}, {supported, launch, cost<Fn>});
  }
};

}  // namespace

std::vector<KernelPtr> bytes_host_kernels() {
  using namespace op;
  return {Kernel<LogicalAnd, And>::make(),    Kernel<LogicalOr, Or>::make(),   Kernel<LogicalXor, Xor>::make(),
          Kernel<LogicalNot, IsZero>::make(), Kernel<BitwiseAnd, And>::make(), Kernel<BitwiseOr, Or>::make(),
          Kernel<BitwiseXor, Xor>::make(),    Kernel<BitwiseNot, Invert>::make(), Kernel<EltwiseAdd, Plus>::make(),
          Kernel<Sub, Minus>::make()};
}

}  // namespace npu::pointwise
