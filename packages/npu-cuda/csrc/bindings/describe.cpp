// Descriptions of tensors: DLPack's as those of the core.
#include <algorithm>

#include "bindings/tensors.h"
#include "core/call_memo.h"

namespace npu::bindings {
namespace {

[[gnu::cold]] Status unknown_place(const DLDevice& device) {
  return Status::invalid("is on a device of type " + std::to_string(device.device_type) +
                         " of DLPack; the CPU (1) and CUDA (2) are possible");
}

Status find_place(const DLDevice& device, TensorDesc* out) {
  switch (device.device_type) {
    case kDLCPU:
    case kDLCUDAHost:  // pinned memory of the CPU
      out->device_type = NPU_CPU;
      out->device_id = 0;
      return {};
    case kDLCUDA:
    case kDLCUDAManaged:
      out->device_type = NPU_CUDA;
      out->device_id = device.device_id;
      return {};
  }
  return unknown_place(device);
}

// As PyTorch sees it: strides of axes of size 1 do not matter, and an empty tensor is contiguous.
bool is_dense(const TensorDesc& tensor) {
  if (tensor.numel == 0) return true;
  int64_t expected = 1;
  for (int axis = tensor.rank - 1; axis >= 0; --axis) {
    if (tensor.shape[axis] == 1) continue;
    if (tensor.strides[axis] != expected) return false;
    expected *= tensor.shape[axis];
  }
  return true;
}

Status count_elements(TensorDesc* tensor) {
  int64_t numel = 1, without_empty = 1;  // numel is 0 where one axis is; the others must be sane all the same
  for (int axis = 0; axis < tensor->rank; ++axis) {
    const int64_t size = tensor->shape[axis];
    if (size < 0) return Status::invalid("has the size " + std::to_string(size) + " in axis " + std::to_string(axis));
    numel *= size != 0;
    if (__builtin_mul_overflow(without_empty, std::max<int64_t>(size, 1), &without_empty)) {
      return Status::invalid("has more elements than an int64 can count");
    }
  }
  int64_t bytes = 0;
  if (__builtin_mul_overflow(without_empty, item_bytes(tensor->dtype), &bytes)) {
    return Status::invalid("has more bytes than an int64 can count");
  }
  tensor->numel = numel * without_empty;
  return {};
}

void set_dense_strides(TensorDesc* tensor) {
  int64_t stride = 1;
  for (int axis = tensor->rank - 1; axis >= 0; --axis) {
    tensor->strides[axis] = stride;
    stride *= std::max<int64_t>(tensor->shape[axis], 1);
  }
}

Status set_strides(TensorDesc* tensor, const int64_t* strides) {
  int64_t last = item_bytes(tensor->dtype);  // bytes to the end of the last element
  for (int axis = 0; axis < tensor->rank; ++axis) {
    const bool matters = tensor->shape[axis] > 1 && tensor->numel != 0;
    tensor->strides[axis] = matters ? strides[axis] : std::max<int64_t>(strides[axis], 0);
    if (tensor->strides[axis] < 0) {
      return Status::invalid("has the stride " + std::to_string(strides[axis]) + " in axis " + std::to_string(axis) +
                             "; negative strides are not possible: make a contiguous copy");
    }
    int64_t step = 0;
    if (matters && (__builtin_mul_overflow(tensor->strides[axis], item_bytes(tensor->dtype), &step) ||
                    __builtin_mul_overflow(step, tensor->shape[axis] - 1, &step) ||
                    __builtin_add_overflow(last, step, &last))) {
      return Status::invalid("spans more bytes than an int64 can count");
    }
  }
  return {};
}

// Does in one pass what mostly is to be done: numel, strides and flags of a tensor that is not empty and has the strides
// of row-major order. False, and nothing is decided, where it is another one, or one that is refused.
bool complete_dense(TensorDesc* tensor, const int64_t* strides) {
  int64_t numel = 1;
  for (int axis = tensor->rank - 1; axis >= 0; --axis) {
    const int64_t size = tensor->shape[axis], stride = strides[axis];
    const bool is_expected = size == 1 ? stride >= 0 : stride == numel;
    if (size <= 0 || !is_expected || __builtin_mul_overflow(numel, size, &numel)) return false;
    tensor->strides[axis] = stride;
  }
  int64_t bytes = 0;
  if (__builtin_mul_overflow(numel, item_bytes(tensor->dtype), &bytes)) return false;
  tensor->numel = numel;
  tensor->flags = NPU_TENSOR_CONTIGUOUS;
  return true;
}

[[gnu::noinline]] Status complete_any(TensorDesc* tensor, const int64_t* strides) {
  NPU_TRY(count_elements(tensor));
  if (strides) NPU_TRY(set_strides(tensor, strides));
  else set_dense_strides(tensor);
  tensor->flags = is_dense(*tensor) ? uint32_t{NPU_TENSOR_CONTIGUOUS} : 0;
  return {};
}

}  // namespace

Status complete(TensorDesc* tensor, const int64_t* strides) {
  if (!strides || !complete_dense(tensor, strides)) NPU_TRY(complete_any(tensor, strides));
  tensor->alignment = alignment_of(tensor->data);
  return {};
}

Status describe(const DLTensor& dl, TensorDesc* out) {
  if (dl.ndim < 0 || dl.ndim > NPU_MAX_RANK) return no_such_rank(dl.ndim);
  if (dl.ndim > 0 && !dl.shape) return Status::invalid("has rank " + std::to_string(dl.ndim) + ", and no shape");
  if (dl.dtype.bits == 0 || dl.dtype.lanes == 0) return Status::invalid("has a dtype of 0 bits");
  NPU_TRY(find_place(dl.device, out));
  out->data = dl.data ? static_cast<char*>(dl.data) + dl.byte_offset : nullptr;
  out->rank = dl.ndim;
  out->dtype = {dl.dtype.code, dl.dtype.bits, dl.dtype.lanes};
  for (int axis = 0; axis < dl.ndim; ++axis) out->shape[axis] = dl.shape[axis];  // too few for a call of memmove
  return complete(out, dl.strides);
}

bool is_like(const TensorDesc& known, const DLTensor& dl) {
  const bool is_there = (dl.device.device_type == kDLCPU && known.device_type == NPU_CPU) ||
                        (dl.device.device_type == kDLCUDA && known.device_type == NPU_CUDA &&
                         dl.device.device_id == known.device_id);
  const DType dtype{dl.dtype.code, dl.dtype.bits, dl.dtype.lanes};
  if (!is_there || !dl.data || !dl.strides || dl.ndim != known.rank || !(dtype == known.dtype)) return false;
  for (int axis = 0; axis < known.rank; ++axis) {
    if (dl.shape[axis] != known.shape[axis] || dl.strides[axis] != known.strides[axis]) return false;
  }
  return true;
}

bool describe_as(const TensorDesc& known, const DLTensor& dl, TensorDesc* out) {
  if (!is_like(known, dl)) return false;
  void* const data = static_cast<char*>(dl.data) + dl.byte_offset;
  if (alignment_of(data) != known.alignment) return false;
  out->data = data;
  out->numel = known.numel;
  out->rank = known.rank;
  out->dtype = known.dtype;
  out->device_type = known.device_type;
  out->device_id = known.device_id;
  out->flags = known.flags;
  out->alignment = known.alignment;
  std::copy_n(known.shape, known.rank, out->shape);
  std::copy_n(known.strides, known.rank, out->strides);
  return true;
}

}  // namespace npu::bindings
