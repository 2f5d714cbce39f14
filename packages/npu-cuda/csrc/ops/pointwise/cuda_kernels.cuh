// The CUDA kernels of a list of ops: of float32, float16 and bfloat16 `flat`, which is preferred, and of each
// class `nested`. What does not depend on the op is in cuda_call.cu, or compiled once for each type of
// attributes: there are hundreds of kernels.
#pragma once

#include "ops/kernel_loading.h"
#include "ops/pointwise/cuda_rows.cuh"
#include "ops/pointwise/nest.h"
#include "ops/pointwise/pointwise.h"

namespace npu::pointwise {

// How a kernel reads its operands.
struct Variant {
  const char* end;  // of its id
  int32_t priority;
};
inline constexpr Variant kVec{".cuda.vec", 20};  // as they are
inline constexpr Variant kAnyLayout{".cuda", 5};

// `elements`: "f32". `dtype`: of the first input; of no bits: any.
void add_cuda_kernel(const Row& row, const char* elements, const Variant& variant,
                     const KernelFunctions& functions, DType dtype, std::vector<KernelPtr>* kernels);

// Ok where all operands are one row, or one element, of these dtypes.
Status check_flat(const OpCall& call, DType x, DType y);

// The bits of the inputs that are one element.
uint32_t constants_of(const OpCall& call);

template <class Fn, class X, class Y>
Status supported_flat(const OpCall& call) {
  NPU_TRY((supported<Fn, kFloat32>(call)));
  return check_flat(call, kDTypeOf<X>, kDTypeOf<Y>);
}

template <int kIn, int kOut, class Attrs>
[[gnu::noinline]] Status launch_flat_rows(const OpCall& call,
                                          void (*kernel)(FlatRows<kIn, kOut>, Attrs, int64_t), int access) {
  const int64_t n = call.outputs[0].numel;
  if (n == 0) return {};
  FlatRows<kIn, kOut> rows{};
  for (int i = 0; i < kIn; ++i) rows.in[i] = call.inputs[i].data;
  for (int i = 0; i < kOut; ++i) rows.out[i] = call.outputs[i].data;
  rows.constants = constants_of(call);
  return launch(kernel, item_shape(n / access), call.stream, rows, resolved_attrs<Attrs>(call), n);
}

template <class Fn, class X, class Y>
Status launch_flat(const OpCall& call) { return launch_flat_rows(call, &flat<Fn, X, Y>, kAccess<X, Y>); }

template <class Fn, Class type>
Status supported_nested(const OpCall& call) {
  NPU_TRY((supported<Fn, type>(call)));
  return expect_near(call);
}

// Whether neighbours of an operand, `count` of them, are one aligned access wherever they begin. A nest that is one row
// may have a rest.
bool is_wide(const TensorDesc& tensor, const Nest& nest, int operand, int64_t count);

template <class Number, int kCount>
NestedRows<kCount> nested_rows(const OpCall& call) {
  constexpr int64_t neighbours = kNeighbours<Number>;
  const Nest nest = nest_of(call);
  const int64_t threads_of_row = (nest.shape[0] + neighbours - 1) / neighbours;
  NestedRows<kCount> rows{};
  rows.rank = nest.rank;
  rows.threads = static_cast<uint32_t>(nest.numel / nest.shape[0] * threads_of_row);
  rows.threads_of_row = FastDivision(static_cast<uint32_t>(threads_of_row));
  for (int axis = 0; axis < nest.rank; ++axis) {
    rows.shape[axis] = FastDivision(static_cast<uint32_t>(nest.shape[axis]));
    for (int i = 0; i < kCount; ++i) rows.strides[i][axis] = static_cast<uint32_t>(nest.strides[i][axis]);
  }
  for (int i = 0; i < kCount; ++i) {
    rows.data[i] = operand_of(call, i).data;
    rows.element[i] = element_of(operand_of(call, i).dtype);
    rows.bytes[i] = static_cast<uint8_t>(item_bytes(operand_of(call, i).dtype));
    if (is_wide(operand_of(call, i), nest, i, neighbours)) rows.wide |= 1u << i;
  }
  return rows;
}

template <class Number, int kCount, class Attrs>
[[gnu::noinline]] Status launch_nested_rows(const OpCall& call, void (*kernel)(NestedRows<kCount>, Attrs)) {
  if (call.outputs[0].numel == 0) return {};
  constexpr unsigned of_a_device = 132 * kThreads;  // with fewer, small blocks reach all multiprocessors of a large one
  const auto rows = nested_rows<Number, kCount>(call);
  const unsigned threads = rows.threads < of_a_device ? 32 : kThreads;
  const LaunchShape shape{blocks_for(rows.threads, threads), dim3(threads)};
  return launch(kernel, shape, call.stream, rows, resolved_attrs<Attrs>(call));
}

template <class Fn, Class type>
Status launch_nested(const OpCall& call) {
  return launch_nested_rows<NumberOf<type>>(call, &nested<Fn, NumberOf<type>>);
}

template <class Fn, class X, class Y>
void add_flat(const char* elements, std::vector<KernelPtr>* kernels) {
  const DType dtype = kInputs<Fn> == 0 ? DType{} : kDTypeOf<X>;
  add_cuda_kernel(Fn::row, elements, kVec,
                  {supported_flat<Fn, X, Y>, launch_flat<Fn, X, Y>, cost<Fn>, nullptr,
                   load_kernel<flat<Fn, X, Y>>},
                  dtype, kernels);
}

template <class Fn, Class type>
void add_nested(std::vector<KernelPtr>* kernels) {
  if constexpr ((Fn::row.classes & type) != 0) {
    add_cuda_kernel(Fn::row, class_name(type), kAnyLayout,
                    {supported_nested<Fn, type>, launch_nested<Fn, type>, cost<Fn>, nullptr,
                     load_kernel<nested<Fn, NumberOf<type>>>},
                    DType{}, kernels);
  }
}

template <class Fn>
void add_kernels(std::vector<KernelPtr>* kernels) {
  if constexpr (Fn::row.classes == kTruth) {
    add_flat<Fn, float, Bool>("f32", kernels);
    add_flat<Fn, __half, Bool>("f16", kernels);
    add_flat<Fn, __nv_bfloat16, Bool>("bf16", kernels);
  } else if constexpr ((Fn::row.classes & kFloat32) != 0) {
    add_flat<Fn, float, float>("f32", kernels);
    add_flat<Fn, __half, __half>("f16", kernels);
    add_flat<Fn, __nv_bfloat16, __nv_bfloat16>("bf16", kernels);
  }
  add_nested<Fn, kFloat32>(kernels);
  add_nested<Fn, kFloat64>(kernels);
  add_nested<Fn, kInt64>(kernels);
}

template <class... Fns>
std::vector<KernelPtr> cuda_kernels_of(Ops<Fns...>) {
  std::vector<KernelPtr> kernels;
  (add_kernels<Fns>(&kernels), ...);
  return kernels;
}

}  // namespace npu::pointwise
