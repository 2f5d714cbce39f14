#include <algorithm>

#include "ops/floats.h"
#include "ops/host_simd.h"
#include "ops/relu/relu.h"

namespace npu {
namespace {

inline float relu(float x) { return x < 0.0f ? 0.0f : x; }
// Of the 16-bit floats the negative numbers lie, as bits, between -0.0 and -infinity; NaN lies above.
inline Half relu(Half x) { return {x.bits > 0x8000 && x.bits <= 0xfc00 ? uint16_t{0} : x.bits}; }
inline BFloat16 relu(BFloat16 x) { return {x.bits > 0x8000 && x.bits <= 0xff80 ? uint16_t{0} : x.bits}; }

template <class T>
struct Relu {
  [[gnu::always_inline]] static inline void run(const T* x, T* y, int64_t n) {
    T block[1024];  // apart from x and y, which may be the same
    for (int64_t start = 0; start < n; start += 1024) {
      const int64_t count = std::min<int64_t>(1024, n - start);
      for (int64_t i = 0; i < count; ++i) block[i] = relu(x[start + i]);
      std::copy_n(block, count, y + start);
    }
  }
};

template <class T>
Status supported(const OpCall& call) {
  return relu_supported(call, kDTypeOf<T>);
}

template <class T>
Status launch(const OpCall& call) {
  NPU_TRY(supported<T>(call));
  const TensorDesc& x = call.inputs[0];
  run_simd<Relu<T>>(static_cast<const T*>(x.data), static_cast<T*>(call.outputs[0].data), x.numel);
  return {};
}

template <class T>
KernelPtr kernel(const char* id) {
  return make_kernel({OpKind::EltwiseRelu, id, DeviceType::Host}, {supported<T>, launch<T>, relu_cost}, kDTypeOf<T>);
}

}  // namespace

std::vector<KernelPtr> relu_host_kernels() {
  return {kernel<float>("relu.f32.host"), kernel<Half>("relu.f16.host"), kernel<BFloat16>("relu.bf16.host")};
}

}  // namespace npu
