#include "core/kernel.h"

#include <algorithm>

namespace npu {
namespace {

class FunctionKernel final : public Kernel {
 public:
  FunctionKernel(KernelTraits traits, KernelFunctions functions)
      : Kernel(std::move(traits)), functions_(functions) {}

  Status supported(const OpCall& call) const override { return functions_.supported(call); }
  Status launch(const OpCall& call) const override { return functions_.launch(call); }
  uint64_t workspace_bytes(const OpCall& call) const override {
    return functions_.workspace_bytes ? functions_.workspace_bytes(call) : 0;
  }
  Status prepare(const OpCall& call, void** state) const override {
    *state = nullptr;
    return functions_.prepare ? functions_.prepare(call, state) : Status();
  }
  Cost cost(const OpCall& call) const override { return functions_.cost ? functions_.cost(call) : Kernel::cost(call); }

 private:
  KernelFunctions functions_;
};

}  // namespace

int64_t span_bytes_of_strided(const TensorDesc& tensor) {
  if (tensor.numel == 0) return 0;
  int64_t last = 0;
  for (int i = 0; i < tensor.rank; ++i) last += (tensor.shape[i] - 1) * tensor.strides[i];
  return (last + 1) * item_bytes(tensor.dtype);
}

Status expect_near(const OpCall& call) {
  constexpr int64_t far = int64_t{1} << 31;
  const auto is_far = [](const TensorDesc& x) { return x.numel >= far || span_bytes(x) / item_bytes(x.dtype) >= far; };
  const bool has_far = std::any_of(call.inputs, call.inputs + call.num_inputs, is_far) ||
                       std::any_of(call.outputs, call.outputs + call.num_outputs, is_far);
  return has_far ? Status::not_implemented("a tensor spans 2^31 elements or more") : Status();
}

std::string name_of(DType dtype) {
  static constexpr const char* kinds[] = {"int", "uint", "float", "opaque", "bfloat", "complex", "bool"};
  static constexpr const char* floats_of_8[] = {"float8_e3m4",     "float8_e4m3", "float8_e4m3b11fnuz", "float8_e4m3fn",
                                                "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz",    "float8_e8m0fnu"};
  if (dtype.code == 6 && dtype.bits == 8 && dtype.lanes == 1) return "bool";
  if (dtype.code >= 7 && dtype.code <= 14 && dtype.bits == 8 && dtype.lanes == 1) return floats_of_8[dtype.code - 7];
  std::string name = dtype.code < 7 ? kinds[dtype.code] : "dtype" + std::to_string(dtype.code) + "_";
  name += std::to_string(dtype.bits);
  return dtype.lanes == 1 ? name : name + "x" + std::to_string(dtype.lanes);
}

std::string text_of(const int64_t* numbers, int count) {
  std::string text = "[";
  for (int i = 0; i < count; ++i) text += (i ? ", " : "") + std::to_string(numbers[i]);
  return text + "]";
}

std::string text_of(const TensorDesc& tensor) {
  std::string text = name_of(tensor.dtype) + text_of(tensor.shape, tensor.rank);
  return is_contiguous(tensor) ? text : text + " strides " + text_of(tensor.strides, tensor.rank);
}

Status other_dtype(const TensorDesc& tensor, DType dtype, const char* which) {
  return Status::not_implemented(std::string(which) + " is " + name_of(tensor.dtype) + ", not " + name_of(dtype));
}

Status not_contiguous(const TensorDesc& tensor, const char* which) {
  return Status::not_implemented(std::string(which) + " is not contiguous: " + text_of(tensor));
}

Status not_aligned(const TensorDesc& tensor, uint32_t alignment, const char* which) {
  return Status::not_implemented(std::string(which) + " is aligned to " + std::to_string(tensor.alignment) +
                                 " bytes, not to " + std::to_string(alignment));
}

Status other_shape(const TensorDesc& a, const TensorDesc& b, const char* which_a, const char* which_b) {
  return Status::not_implemented(std::string(which_a) + " is " + text_of(a.shape, a.rank) + ", " + which_b + " is " +
                                 text_of(b.shape, b.rank));
}

Cost cost_of(const OpCall& call, double flops) {
  double bytes = 0;
  for (int i = 0; i < call.num_inputs; ++i) bytes += double(nbytes(call.inputs[i]));
  for (int i = 0; i < call.num_outputs; ++i) bytes += double(nbytes(call.outputs[i]));
  return {bytes, flops};
}

KernelPtr make_kernel(KernelTraits traits, KernelFunctions functions, DType input_dtype) {
  traits.input_dtype = input_dtype;
  return std::make_shared<FunctionKernel>(std::move(traits), functions);
}

}  // namespace npu
