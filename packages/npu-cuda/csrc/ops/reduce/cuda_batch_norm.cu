#include "ops/reduce/batch_norm_steps.h"
#include "ops/reduce/cuda_launches.cuh"

namespace npu::reduce {
namespace {

template <Class type>
struct CudaSteps {
  using Number = pointwise::NumberOf<type>;

  // Calls f with what kernels read elements of a dtype as.
  template <class F>
  static Status with_elements(DType dtype, F f) {
    if constexpr (type == kFloat32) {
      if (dtype == kFloat16) return f(__half{});
      if (dtype == kBFloat16) return f(__nv_bfloat16{});
      return f(float{});
    } else {
      return f(AnyElement{});
    }
  }
  template <class Fn>
  static Status reduce(const OpCall& call) {
    return with_elements(call.inputs[0].dtype,
                         [&]<class X>(X) { return launch_reduction<Fn, Number, X>(call); });
  }
  template <class Fn>
  static Status reduce_around(const TensorDesc& m, const OpCall& call) {
    return with_elements(call.inputs[0].dtype, [&]<class X>(X) {
      return launch_once(call, kernels_of<Fn, Number, X>(), static_cast<const Number*>(m.data));
    });
  }
  static bool sums_products(const TensorDesc&, const TensorDesc&) { return true; }
  static Status sum_products(const TensorDesc& dy, const TensorDesc& m, const OpCall& call) {
    return with_elements(call.inputs[0].dtype, [&]<class X>(X) {
      const auto kernels = kernels_of<op::Sum, Number, Centered<X>>();
      return launch_once(call, kernels, static_cast<const Number*>(m.data), dy.data);
    });
  }
  template <class Fn>
  static Status pointwise(const OpCall& call) { return npu::pointwise::launch_nested<Fn, type>(call); }
  template <class Fn>
  static uint64_t reduction_bytes(const OpCall& call) {
    uint64_t bytes = 0;
    static_cast<void>(with_elements(call.inputs[0].dtype, [&]<class X>(X) {
      bytes = workspace_bytes<Fn, Number, X>(call);
      return Status();
    }));
    return bytes;
  }
};

template <class X>
using Plain = X;

template <class Fn, class Number, template <class> class Of = Plain>
Status load_reduction(const OpCall& call, void** state) {
  if constexpr (std::is_same_v<Number, float>) {
    NPU_TRY((load_all<Fn, float, Of<float>>(call, state)));
    NPU_TRY((load_all<Fn, float, Of<__half>>(call, state)));
    return load_all<Fn, float, Of<__nv_bfloat16>>(call, state);
  } else {
    return load_all<Fn, Number, Of<AnyElement>>(call, state);
  }
}

template <class Number, class... Fns>
Status load_pointwise(const OpCall& call, void** state) {
  Status status;
  ((status.ok() ? void(status = load_kernel<pointwise::nested<Fns, Number>>(call, state)) : void()), ...);
  return status;
}

template <class Number>
Status load_fwd(const OpCall& call, void** state) {
  NPU_TRY((load_reduction<op::Mean, Number>(call, state)));
  NPU_TRY((load_reduction<op::Var, Number>(call, state)));
  return load_pointwise<Number, pointwise::op::Cast, step::InverseDeviation, step::Normalize,
      step::NormalizeAffine, step::NormalizeRelu>(call, state);
}

template <class Number>
Status load_bwd(const OpCall& call, void** state) {
  NPU_TRY((load_reduction<op::Sum, Number>(call, state)));
  NPU_TRY((load_reduction<op::Sum, Number, Centered>(call, state)));
  return load_pointwise<Number, pointwise::op::ReluBwd, step::InverseDeviation, step::Projection, step::Scale,
      step::ScaleAffine, step::Gradient, step::GradientAffine>(call, state);
}

template <Class type>
void add_batch_norms(std::vector<KernelPtr>* kernels) {
  using Steps = CudaSteps<type>;
  using Number = typename Steps::Number;
  const std::string suffix = std::string(".") + pointwise::class_name(type) + ".cuda";
  const auto fwd = [](const OpCall& call) {
    NPU_TRY(check_batch_norm_fwd(type, call));
    return expect_near(call);
  };
  const auto bwd = [](const OpCall& call) {
    NPU_TRY(check_batch_norm_bwd(type, call));
    return expect_near(call);
  };
  kernels->push_back(make_kernel({OpKind::BatchNormFwd, "batch_norm_fwd" + suffix, DeviceType::Cuda, 5},
                                 {fwd, launch_batch_norm_fwd<Steps>, nullptr, fwd_bytes<Steps>,
                                  load_fwd<Number>}));
  kernels->push_back(make_kernel({OpKind::BatchNormBwd, "batch_norm_bwd" + suffix, DeviceType::Cuda, 5},
                                 {bwd, launch_batch_norm_bwd<Steps>, nullptr, bwd_bytes<Steps>,
                                  load_bwd<Number>}));
}

}  // namespace

std::vector<KernelPtr> batch_norm_cuda_kernels() {
  std::vector<KernelPtr> kernels;
  add_batch_norms<kFloat32>(&kernels);
  add_batch_norms<kFloat64>(&kernels);
  return kernels;
}

}  // namespace npu::reduce
