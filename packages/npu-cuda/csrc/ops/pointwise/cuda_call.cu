#include "ops/pointwise/cuda_kernels.cuh"

namespace npu::pointwise {

namespace {

// An input of one element for all: it need not be aligned.
bool is_one_element(const TensorDesc& input, const OpCall& call) {
  return input.numel == 1 && call.outputs[0].numel != 1;
}

// A row must be read in the order in which it is in memory: the shapes are equal, and so are the strides.
bool is_row_of(const TensorDesc& tensor, const TensorDesc& y) {
  if (is_contiguous(tensor) && is_contiguous(y)) return same_shape(tensor, y);
  return same_shape(tensor, y) && std::equal(tensor.strides, tensor.strides + tensor.rank, y.strides);
}

}  // namespace

void add_cuda_kernel(const Row& row, const char* elements, const Variant& variant,
                     const KernelFunctions& functions, DType dtype, std::vector<KernelPtr>* kernels) {
  const std::string id = kernel_name(row) + "." + elements + variant.end;
  kernels->push_back(make_kernel({row.kind, id, DeviceType::Cuda, variant.priority}, functions, dtype));
}

Status check_flat(const OpCall& call, DType x_dtype, DType y_dtype) {
  for (int i = 0; i < call.num_inputs; ++i) {
    const TensorDesc& x = call.inputs[i];
    NPU_TRY(expect_dtype(x, x_dtype, "an input"));
    if (is_one_element(x, call)) continue;
    NPU_TRY(expect_alignment(x, kVectorBytes, "an input"));
    if (!is_row_of(x, call.outputs[0])) return not_contiguous(x, "an input");
  }
  for (int i = 0; i < call.num_outputs; ++i) {
    const TensorDesc& y = call.outputs[i];
    NPU_TRY(expect_dtype(y, y_dtype, "an output"));
    NPU_TRY(expect_alignment(y, kVectorBytes, "an output"));
    if (!is_row_of(y, call.outputs[0])) return not_contiguous(y, "an output");
  }
  if (call.outputs[0].numel == 0 || nest_of(call).is_flat()) return {};
  return not_contiguous(call.outputs[0], "an output");
}

uint32_t constants_of(const OpCall& call) {
  uint32_t constants = 0;
  for (int i = 0; i < call.num_inputs; ++i) {
    if (is_one_element(call.inputs[i], call)) constants |= 1u << i;
  }
  return constants;
}

bool is_wide(const TensorDesc& tensor, const Nest& nest, int operand, int64_t count) {
  const int64_t bytes = item_bytes(tensor.dtype);
  if (count == 1 || bytes > 4 || tensor.alignment < count * bytes || nest.strides[operand][0] != 1) return false;
  if (nest.rank > 1 && nest.shape[0] % count != 0) return false;
  const int64_t* strides = nest.strides[operand];
  return std::all_of(strides + 1, strides + nest.rank, [=](int64_t stride) { return stride % count == 0; });
}

}  // namespace npu::pointwise
