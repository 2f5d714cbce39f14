#include "ops/attention/attention.h"

#include <cmath>

namespace npu::attention {
namespace {

constexpr DType kBool{6, 8, 1};

Status expect_shape(const TensorDesc& tensor, std::initializer_list<int64_t> shape, const char* which) {
  bool is_same = tensor.rank == static_cast<int>(shape.size());
  int axis = 0;
  for (const int64_t size : shape) is_same = is_same && tensor.shape[axis++] == size;
  if (is_same) return {};
  std::string wanted;
  for (const int64_t size : shape) wanted += (wanted.empty() ? "[" : ", ") + std::to_string(size);
  return Status::not_implemented(std::string(which) + " is " + text_of(tensor) + ", not " + wanted + "]");
}

Status check_mask(const TensorDesc& mask, const TensorDesc& q, int64_t keys) {
  if (mask.dtype != q.dtype && mask.dtype != kBool) {
    return Status::not_implemented("the mask is " + name_of(mask.dtype) + ", neither bool nor " + name_of(q.dtype));
  }
  const int64_t sizes[4] = {q.shape[0], q.shape[1], q.shape[2], keys};
  bool fits = mask.rank <= 4;
  for (int axis = 1; axis <= mask.rank && fits; ++axis) {
    const int64_t size = mask.shape[mask.rank - axis];
    fits = size == 1 || size == sizes[4 - axis];
  }
  if (fits) return {};
  return Status::not_implemented("the mask is " + text_of(mask) + ", which is not broadcast to " + std::to_string(sizes[2]) +
                                 " queries and " + std::to_string(keys) + " keys");
}

View view_of(const TensorDesc& tensor) {
  View view{static_cast<char*>(tensor.data), {}};
  for (int axis = 0; axis < tensor.rank; ++axis) {
    const int place = 4 - tensor.rank + axis;
    view.strides[place] = tensor.shape[axis] == 1 ? 0 : tensor.strides[axis];
  }
  return view;
}

// [batch, heads, queries]
View view_of_rows(const TensorDesc& tensor) {
  return {static_cast<char*>(tensor.data), {tensor.strides[0], tensor.strides[1], tensor.strides[2], 0}};
}

// The Attention that a gradient is of.
struct ForwardCall {
  OpCall call;
  TensorDesc inputs[4], outputs[2];

  explicit ForwardCall(const OpCall& whole) : call(whole) {
    for (int i = 0; i < 3; ++i) inputs[i] = whole.inputs[1 + i];
    for (int i = 0; i < 2; ++i) outputs[i] = whole.inputs[4 + i];
    if (whole.num_inputs == 7) inputs[3] = whole.inputs[6];
    call.num_inputs = whole.num_inputs - 3;
    call.num_outputs = 2;
    call.inputs = inputs;
    call.outputs = outputs;
  }
  ForwardCall(const ForwardCall&) = delete;
};

}  // namespace

Status check(const OpCall& call) {
  const TensorDesc &q = call.inputs[0], &k = call.inputs[1], &v = call.inputs[2];
  if (q.rank != 4) return Status::not_implemented("q has " + std::to_string(q.rank) + " axes, not 4");
  if (q.dtype != kFloat32 && q.dtype != kFloat16 && q.dtype != kBFloat16) {
    return Status::not_implemented("q is " + name_of(q.dtype) + ", not a float of 32 or 16 bits");
  }
  NPU_TRY(expect_dtype(k, q.dtype, "k"));
  NPU_TRY(expect_dtype(v, q.dtype, "v"));
  NPU_TRY(expect_dtype(call.outputs[0], q.dtype, "o"));
  if (k.rank != 4 || v.rank != 4) return Status::not_implemented("k or v has not 4 axes");
  const int64_t groups = k.shape[1], keys = k.shape[2];
  if (groups == 0 || q.shape[1] % groups != 0) {
    return Status::not_implemented(std::to_string(q.shape[1]) + " heads are not a multiple of " + std::to_string(groups));
  }
  NPU_TRY(expect_shape(k, {q.shape[0], groups, keys, q.shape[3]}, "k"));
  NPU_TRY(expect_shape(v, {q.shape[0], groups, keys, v.shape[3]}, "v"));
  NPU_TRY(expect_shape(call.outputs[0], {q.shape[0], q.shape[1], q.shape[2], v.shape[3]}, "o"));
  if (call.num_outputs == 2) {
    NPU_TRY(expect_dtype(call.outputs[1], kFloat32, "lse"));
    NPU_TRY(expect_shape(call.outputs[1], {q.shape[0], q.shape[1], q.shape[2]}, "lse"));
  }
  const int32_t is_causal = attrs_of<Attrs>(call).is_causal;
  if (is_causal != 0 && is_causal != 1) return Status::not_implemented("is_causal is " + std::to_string(is_causal) + ", not 0 or 1");
  return call.num_inputs == 4 ? check_mask(call.inputs[3], q, keys) : Status();
}

Geometry geometry_of(const OpCall& call) {
  const TensorDesc &q = call.inputs[0], &k = call.inputs[1], &v = call.inputs[2];
  const Attrs attrs = attrs_of<Attrs>(call);
  Geometry g{};
  g.dtype = q.dtype;
  g.batch = q.shape[0], g.heads = q.shape[1], g.groups = k.shape[1], g.queries = q.shape[2], g.keys = k.shape[2];
  g.size = q.shape[3], g.value_size = v.shape[3];
  g.scale = attrs.scale != 0 ? attrs.scale : static_cast<float>(1 / std::sqrt(double(std::max<int64_t>(1, g.size))));
  g.is_causal = attrs.is_causal != 0;
  g.q = view_of(q), g.k = view_of(k), g.v = view_of(v), g.o = view_of(call.outputs[0]);
  g.has_lse = call.num_outputs == 2;
  if (g.has_lse) g.lse = view_of_rows(call.outputs[1]);
  g.has_mask = call.num_inputs == 4;
  if (!g.has_mask) return g;
  const TensorDesc& mask = call.inputs[3];
  g.mask = view_of(mask);
  g.mask_is_truth = mask.dtype == kBool;
  for (int axis = 0; axis < 2; ++axis) {
    g.mask_sizes[axis] = g.mask.strides[axis] == 0 ? 1 : mask.shape[mask.rank - 4 + axis];
  }
  return g;
}

Cost cost(const OpCall& call) {
  const TensorDesc &q = call.inputs[0], &k = call.inputs[1], &v = call.inputs[2];
  const double pairs = double(q.shape[0]) * double(q.shape[1]) * double(q.shape[2]) * double(k.shape[2]);
  return cost_of(call, 2 * pairs * double(q.shape[3] + v.shape[3]) * (attrs_of<Attrs>(call).is_causal ? 0.5 : 1.0));
}

Status check_gradient(const OpCall& call) {
  const ForwardCall forward(call);
  NPU_TRY(check(forward.call));
  const TensorDesc &d_o = call.inputs[0], &q = call.inputs[1], &k = call.inputs[2];
  NPU_TRY(expect_dtype(d_o, q.dtype, "do"));
  NPU_TRY(expect_same_shape(d_o, call.inputs[4], "do", "o"));
  if (k.shape[1] != q.shape[1]) {
    return Status::not_implemented("k has " + std::to_string(k.shape[1]) + " heads, q has " + std::to_string(q.shape[1]));
  }
  static constexpr const char *names[] = {"q", "k", "v"}, *gradients[] = {"dq", "dk", "dv"};
  for (int i = 0; i < 3; ++i) {
    NPU_TRY(expect_dtype(call.outputs[i], q.dtype, gradients[i]));
    NPU_TRY(expect_same_shape(call.outputs[i], call.inputs[1 + i], gradients[i], names[i]));
  }
  return {};
}

Geometry geometry_of_gradient(const OpCall& call) {
  Geometry g = geometry_of(ForwardCall(call).call);
  g.d_o = view_of(call.inputs[0]);
  g.d_q = view_of(call.outputs[0]), g.d_k = view_of(call.outputs[1]), g.d_v = view_of(call.outputs[2]);
  return g;
}

Cost gradient_cost(const OpCall& call) { return cost_of(call, 2.5 * cost(ForwardCall(call).call).flops); }

std::vector<OpInfo> infos() {
  const std::vector<AttrField> fields{field("scale", &Attrs::scale), field("is_causal", &Attrs::is_causal)};
  return {{.kind = kAttention, .name = "Attention", .min_inputs = 3, .max_inputs = 4, .num_outputs = 1, .max_outputs = 2,
           .schema = make_schema<Attrs>("ATTN", fields)},
          {.kind = kGradient, .name = "AttentionGradient", .min_inputs = 6, .max_inputs = 7, .num_outputs = 3,
           .schema = make_schema<Attrs>("ATTG", fields)}};
}

}  // namespace npu::attention
