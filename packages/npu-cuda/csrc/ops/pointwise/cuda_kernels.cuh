// The CUDA kernels of a list of ops: of float32, float16 and bfloat16 `flat`, which is preferred, and of each
// class `nested`.
#pragma once

#include "ops/kernel_loading.h"
#include "ops/pointwise/cuda_rows.cuh"
#include "ops/pointwise/nest.h"
#include "ops/pointwise/pointwise.h"

namespace npu::pointwise {

// An input of one element for all: it need not be aligned.
inline bool is_one_element(const TensorDesc& input, const OpCall& call) {
  return input.numel == 1 && call.outputs[0].numel != 1;
}

// A row must be read in the order in which it is in memory: the shapes are equal, and so are the strides.
inline bool is_row_of(const TensorDesc& tensor, const TensorDesc& y) {
  if (is_contiguous(tensor) && is_contiguous(y)) return same_shape(tensor, y);
  return same_shape(tensor, y) && std::equal(tensor.strides, tensor.strides + tensor.rank, y.strides);
}

template <class Fn, class X, class Y>
Status supported_flat(const OpCall& call) {
  NPU_TRY((supported<Fn, kFloat32>(call)));
  for (int i = 0; i < call.num_inputs; ++i) {
    const TensorDesc& x = call.inputs[i];
    NPU_TRY(expect_dtype(x, kDTypeOf<X>, "an input"));
    if (is_one_element(x, call)) continue;
    NPU_TRY(expect_alignment(x, kVectorBytes, "an input"));
    if (!is_row_of(x, call.outputs[0])) return not_contiguous(x, "an input");
  }
  for (int i = 0; i < call.num_outputs; ++i) {
    const TensorDesc& y = call.outputs[i];
    NPU_TRY(expect_dtype(y, kDTypeOf<Y>, "an output"));
    NPU_TRY(expect_alignment(y, kVectorBytes, "an output"));
    if (!is_row_of(y, call.outputs[0])) return not_contiguous(y, "an output");
  }
  if (call.outputs[0].numel == 0 || nest_of(call).is_flat()) return {};
  return not_contiguous(call.outputs[0], "an output");
}

template <class Fn, class X, class Y>
Status launch_flat(const OpCall& call) {
  const int64_t n = call.outputs[0].numel;
  if (n == 0) return {};
  FlatRows<Fn> rows{};
  for (int i = 0; i < call.num_inputs; ++i) {
    rows.in[i] = call.inputs[i].data;
    if (is_one_element(call.inputs[i], call)) rows.constants |= 1u << i;
  }
  for (int i = 0; i < call.num_outputs; ++i) rows.out[i] = call.outputs[i].data;
  return launch(flat<Fn, X, Y>, item_shape(n / kAccess<X, Y>), call.stream, rows, attrs_of_call<Fn>(call), n);
}

// Offsets and indices have 32 bits.
inline bool is_far(const TensorDesc& tensor) {
  return span_bytes(tensor) / item_bytes(tensor.dtype) >= int64_t{1} << 31;
}

inline Status expect_near(const OpCall& call) {
  bool has_far = call.outputs[0].numel >= int64_t{1} << 31;
  for (int i = 0; i < call.num_inputs; ++i) has_far |= is_far(call.inputs[i]);
  for (int i = 0; i < call.num_outputs; ++i) has_far |= is_far(call.outputs[i]);
  return has_far ? Status::not_implemented("a tensor spans 2^31 elements or more") : Status();
}

template <class Fn, Class type>
Status supported_nested(const OpCall& call) {
  NPU_TRY((supported<Fn, type>(call)));
  return expect_near(call);
}

template <int kCount>
NestedRows<kCount> nested_rows(const OpCall& call) {
  const Nest nest = nest_of(call);
  NestedRows<kCount> rows{};
  rows.rank = nest.rank;
  rows.numel = static_cast<uint32_t>(nest.numel);
  for (int axis = 0; axis < nest.rank; ++axis) {
    rows.shape[axis] = FastDivision(static_cast<uint32_t>(nest.shape[axis]));
    for (int i = 0; i < kCount; ++i) rows.strides[i][axis] = static_cast<uint32_t>(nest.strides[i][axis]);
  }
  for (int i = 0; i < kCount; ++i) {
    rows.data[i] = operand_of(call, i).data;
    rows.element[i] = element_of(operand_of(call, i).dtype);
  }
  return rows;
}

template <class Fn, Class type>
Status launch_nested(const OpCall& call) {
  if (call.outputs[0].numel == 0) return {};
  return launch(nested<Fn, NumberOf<type>>, item_shape(call.outputs[0].numel), call.stream,
                nested_rows<kOperands<Fn>>(call), attrs_of_call<Fn>(call));
}

template <class Fn, class X, class Y>
void add_flat(const char* suffix, std::vector<KernelPtr>* kernels) {
  const std::string id = kernel_name(Fn::row) + "." + suffix + ".cuda.vec";
  const KernelFunctions functions{supported_flat<Fn, X, Y>, launch_flat<Fn, X, Y>, cost<Fn>, nullptr,
                                  load_kernel<flat<Fn, X, Y>>};
  const DType dtype = kInputs<Fn> == 0 ? DType{} : kDTypeOf<X>;
  kernels->push_back(make_kernel({Fn::row.kind, id, DeviceType::Cuda, 20}, functions, dtype));
}

template <class Fn, Class type>
void add_nested(std::vector<KernelPtr>* kernels) {
  if constexpr ((Fn::row.classes & type) != 0) {
    const std::string id = kernel_name(Fn::row) + "." + class_name(type) + ".cuda";
    const KernelFunctions functions{supported_nested<Fn, type>, launch_nested<Fn, type>, cost<Fn>, nullptr,
                                    load_kernel<nested<Fn, NumberOf<type>>>};
    kernels->push_back(make_kernel({Fn::row.kind, id, DeviceType::Cuda, 5}, functions));
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
