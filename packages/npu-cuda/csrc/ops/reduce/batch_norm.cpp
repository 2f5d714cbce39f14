#include "ops/reduce/batch_norm.h"

#include "ops/reduce/geometry.h"

namespace npu::reduce {
namespace {

constexpr DType kFloat64Type{2, 64, 1};

AttrSchema schema(const char (&name)[5]) { return make_schema<BatchNorm>(name, BatchNorm::fields()); }

Status check_counts(const OpCall& call, int least, int most) {
  if (call.num_inputs == least || call.num_inputs == most) return {};
  return Status::not_implemented("it takes " + std::to_string(least) + " or " + std::to_string(most) +
                                 " inputs, not " +
                                 std::to_string(call.num_inputs));
}

// x of real numbers, with channels; all other tensors have its class.
Status check_input(Class type, const TensorDesc& x) {
  if (x.rank < 2) return Status::not_implemented("x has " + std::to_string(x.rank) + " axes, less than 2");
  if (type == kFloat64) return expect_dtype(x, kFloat64Type, "x");
  const bool is_real = x.dtype == npu::kFloat32 || x.dtype == kFloat16 || x.dtype == kBFloat16;
  if (is_real) return {};
  return Status::not_implemented("x is " + name_of(x.dtype) + ", not a float of 32 or 16 bits");
}

Status check_image(const TensorDesc& tensor, const TensorDesc& x, const char* which) {
  NPU_TRY(expect_dtype(tensor, x.dtype, which));
  return expect_same_shape(tensor, x, which, "x");
}

Status check_vector(Class type, const TensorDesc& tensor, const TensorDesc& x, const char* which) {
  NPU_TRY(expect_dtype(tensor, type == kFloat64 ? kFloat64Type : npu::kFloat32, which));
  NPU_TRY(expect_contiguous(tensor, which));
  if (tensor.rank == 1 && tensor.shape[0] == x.shape[1]) return {};
  return Status::not_implemented(std::string(which) + " is not a number for each of " +
                                 std::to_string(x.shape[1]) + " channels");
}

Status check_elements(const TensorDesc& x) {
  return x.numel > 0 ? Status() : Status::not_implemented("the statistics of no elements are undefined");
}

}  // namespace

std::vector<OpInfo> batch_norm_infos() {
  return {{.kind = OpKind::BatchNormFwd, .name = "BatchNormFwd", .min_inputs = 1, .max_inputs = 5,
           .num_outputs = 3, .max_outputs = 4,
           .schema = schema("BNEP")},
          {.kind = OpKind::BatchNormBwd, .name = "BatchNormBwd", .min_inputs = 4, .max_inputs = 6,
           .num_outputs = 3,
           .schema = schema("BNEB")}};
}

Status check_batch_norm_fwd(Class type, const OpCall& call) {
  const TensorDesc& x = call.inputs[0];
  const int statistics = attrs_of<BatchNorm>(call).has_running() ? 2 : 0;
  NPU_TRY(check_counts(call, 1 + statistics, 3 + statistics));
  NPU_TRY(check_input(type, x));
  NPU_TRY(check_elements(x));
  const bool has_relu = attrs_of<BatchNorm>(call).has_relu();
  if (has_relu && call.num_inputs == 1 + statistics) return Status::not_implemented("a relu follows a norm with gamma and beta");
  if (statistics > 0 && call.num_outputs > 3) return Status::not_implemented("var is given, and not a result");
  NPU_TRY(check_image(call.outputs[0], x, "y"));
  for (int i = 1; i < call.num_inputs; ++i) NPU_TRY(check_vector(type, call.inputs[i], x, "a parameter"));
  for (int i = 1; i < call.num_outputs; ++i) NPU_TRY(check_vector(type, call.outputs[i], x, "a statistic"));
  return {};
}

Status check_batch_norm_bwd(Class type, const OpCall& call) {
  const TensorDesc& x = call.inputs[1];
  NPU_TRY(check_input(type, x));
  NPU_TRY(check_elements(x));
  NPU_TRY(check_image(call.inputs[0], x, "dy"));
  NPU_TRY(check_image(call.outputs[0], x, "dx"));
  int vectors_end = call.num_inputs;
  if (attrs_of<BatchNorm>(call).has_relu()) {
    NPU_TRY(check_counts(call, 5, 6));
    NPU_TRY(check_image(call.inputs[--vectors_end], x, "y"));
  } else {
    NPU_TRY(check_counts(call, 4, 5));
  }
  for (int i = 2; i < vectors_end; ++i) NPU_TRY(check_vector(type, call.inputs[i], x, "a parameter"));
  for (int i = 1; i < 3; ++i) NPU_TRY(check_vector(type, call.outputs[i], x, "a gradient"));
  return {};
}

}  // namespace npu::reduce
