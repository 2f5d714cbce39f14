// The argument of a kernel: the structs of the C interface under the names of this code base, the checks shared by
// `supported` and `launch`, and attributes by type.
#pragma once

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>

#include "core/status.h"

namespace npu {

using TensorDesc = npu_tensor;
using AttrBlob = npu_attrs;
using OpCall = npu_call;
using Cost = npu_cost;
using DType = npu_dtype;

inline constexpr DType kFloat32{2, 32, 1};
inline constexpr DType kFloat16{2, 16, 1};
inline constexpr DType kBFloat16{4, 16, 1};

inline bool operator==(DType a, DType b) { return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b); }
inline int64_t item_bytes(DType dtype) { return (int64_t{dtype.bits} * dtype.lanes + 7) / 8; }
inline bool is_contiguous(const TensorDesc& tensor) { return tensor.flags & NPU_TENSOR_CONTIGUOUS; }
inline int64_t nbytes(const TensorDesc& tensor) { return tensor.numel * item_bytes(tensor.dtype); }

// Bytes from the first element to the end of the last one; 0 for an empty tensor.
int64_t span_bytes_of_strided(const TensorDesc& tensor);
inline int64_t span_bytes(const TensorDesc& tensor) {
  return is_contiguous(tensor) ? nbytes(tensor) : span_bytes_of_strided(tensor);
}
// NotImplemented where a tensor is too far apart for indices and offsets of 32 bits.
Status expect_near(const OpCall& call);

// Few numbers: a call of memcmp takes longer than to compare them.
inline bool same_numbers(const int64_t* a, const int64_t* b, int count) {
  for (int i = 0; i < count; ++i) {
    if (a[i] != b[i]) return false;
  }
  return true;
}

inline bool same_shape(const TensorDesc& a, const TensorDesc& b) {
  return a.rank == b.rank && same_numbers(a.shape, b.shape, a.rank);
}

// Returns whether two tensors have the same memory, device, dtype, shape and strides.
inline bool is_same_tensor(const TensorDesc& a, const TensorDesc& b) {
  return a.data == b.data && a.device_type == b.device_type && a.device_id == b.device_id && a.dtype == b.dtype &&
         same_shape(a, b) && same_numbers(a.strides, b.strides, a.rank);
}

// "float32", "bfloat16", "int64", ...: the names that PyTorch and NumPy have.
std::string name_of(DType dtype);
// "[2, 3]"
std::string text_of(const int64_t* numbers, int count);
// "float32[2, 3]", with strides where it is not contiguous: "float32[2, 3] strides [1, 2]".
std::string text_of(const TensorDesc& tensor);

// What the functions below return where something does not fit.
[[gnu::cold]] Status other_dtype(const TensorDesc& tensor, DType dtype, const char* which);
[[gnu::cold]] Status not_contiguous(const TensorDesc& tensor, const char* which);
[[gnu::cold]] Status not_aligned(const TensorDesc& tensor, uint32_t alignment, const char* which);
[[gnu::cold]] Status other_shape(const TensorDesc& a, const TensorDesc& b, const char* which_a, const char* which_b);

// Each returns NotImplemented with the reason: an unsupported call is not an error of the caller. They are inline
// since every launch asks them.
inline Status expect_dtype(const TensorDesc& tensor, DType dtype, const char* which) {
  return tensor.dtype == dtype ? Status() : other_dtype(tensor, dtype, which);
}
inline Status expect_contiguous(const TensorDesc& tensor, const char* which) {
  return is_contiguous(tensor) ? Status() : not_contiguous(tensor, which);
}
inline Status expect_alignment(const TensorDesc& tensor, uint32_t alignment, const char* which) {
  return tensor.alignment >= alignment || tensor.numel == 0 ? Status() : not_aligned(tensor, alignment, which);
}
inline Status expect_same_shape(const TensorDesc& a, const TensorDesc& b, const char* which_a, const char* which_b) {
  return same_shape(a, b) ? Status() : other_shape(a, b, which_a, which_b);
}

// Bytes of all inputs and outputs, and these operations.
Cost cost_of(const OpCall& call, double flops);

// The attributes of a call; those that it does not give have their defaults. Dispatch has checked schema and size.
template <class Attrs>
Attrs attrs_of(const OpCall& call) {
  Attrs attrs;
  if (call.attrs.bytes != 0) std::memcpy(&attrs, call.attrs.data, std::min(size_t{call.attrs.bytes}, sizeof(Attrs)));
  return attrs;
}

}  // namespace npu
