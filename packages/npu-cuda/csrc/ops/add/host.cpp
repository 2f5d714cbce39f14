#include <algorithm>
#include <cmath>

#include "ops/add/add.h"
#include "ops/floats.h"
#include "ops/host_simd.h"

namespace npu {
namespace {

template <class T>
struct Add {
  [[gnu::always_inline]] static inline void run(const T* a, const T* b, T* y, int64_t n, float alpha) {
    T block[1024];  // apart from a, b and y, which may be the same
    for (int64_t start = 0; start < n; start += 1024, a += 1024, b += 1024) {
      const int64_t count = std::min<int64_t>(1024, n - start);
      if (alpha == 1) {  // the same bits as below, also fast on processors without fused multiply-add
        for (int64_t i = 0; i < count; ++i) block[i] = from_float<T>(to_float(a[i]) + to_float(b[i]));
      } else {
        for (int64_t i = 0; i < count; ++i) block[i] = from_float<T>(std::fma(alpha, to_float(b[i]), to_float(a[i])));
      }
      std::copy_n(block, count, y + start);
    }
  }
};

template <class T>
Status supported(const OpCall& call) {
  return add_supported(call, kDTypeOf<T>);
}

template <class T>
Status launch(const OpCall& call) {
  NPU_TRY(supported<T>(call));
  const TensorDesc &a = call.inputs[0], &b = call.inputs[1], &y = call.outputs[0];
  run_simd<Add<T>>(static_cast<const T*>(a.data), static_cast<const T*>(b.data), static_cast<T*>(y.data), y.numel,
                   attrs_of<AddAttrs>(call).alpha);
  return {};
}

template <class T>
KernelPtr kernel(const char* id) {
  return make_kernel({OpKind::EltwiseAdd, id, DeviceType::Host}, {supported<T>, launch<T>, add_cost}, kDTypeOf<T>);
}

}  // namespace

std::vector<KernelPtr> add_host_kernels() {
  return {kernel<float>("add.f32.host"), kernel<Half>("add.f16.host"), kernel<BFloat16>("add.bf16.host")};
}

}  // namespace npu
