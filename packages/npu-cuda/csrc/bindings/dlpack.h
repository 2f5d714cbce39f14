// The part of the DLPack 1.x C interface that the bindings use, declared here instead of bundled. Names and layout are
// those of dlpack.h, version 1.3 (https://github.com/dmlc/dlpack, Apache-2.0), which describes each field.
#pragma once

#include <cstdint>

extern "C" {

struct DLPackVersion { uint32_t major, minor; };
struct DLDevice { int32_t device_type, device_id; };
struct DLDataType { uint8_t code, bits; uint16_t lanes; };

enum : int32_t { kDLCPU = 1, kDLCUDA = 2, kDLCUDAHost = 3, kDLCUDAManaged = 13 };
enum : uint64_t { kDLPackReadOnly = 1, kDLPackIsCopied = 2 };
enum : uint32_t { kDLPackMajor = 1, kDLPackMinor = 0 };  // what we ask for and give
enum : uint32_t { kExchangeMinor = 2 };                  // of the first version that has DLPackExchangeAPI

struct DLTensor {
  void* data;
  DLDevice device;
  int32_t ndim;
  DLDataType dtype;
  int64_t* shape;
  int64_t* strides;  // in elements; null stands for contiguous
  uint64_t byte_offset;
};

// In capsules of the name "dltensor".
struct DLManagedTensor {
  DLTensor dl_tensor;
  void* manager_ctx;
  void (*deleter)(DLManagedTensor* self);
};

// In capsules of the name "dltensor_versioned".
struct DLManagedTensorVersioned {
  DLPackVersion version;
  void* manager_ctx;
  void (*deleter)(DLManagedTensorVersioned* self);
  uint64_t flags;
  DLTensor dl_tensor;
};

struct DLPackExchangeAPIHeader {
  DLPackVersion version;
  DLPackExchangeAPIHeader* prev_api;
};

// What type(tensor).__dlpack_c_exchange_api__ holds, a capsule of the name "dlpack_exchange_api". Functions return 0, or
// -1 with a Python exception set; none waits for a stream.
struct DLPackExchangeAPI {
  DLPackExchangeAPIHeader header;
  int (*managed_tensor_allocator)(DLTensor* prototype, DLManagedTensorVersioned** out, void* error_context,
                                  void (*set_error)(void* error_context, const char* kind, const char* message));
  int (*managed_tensor_from_py_object_no_sync)(void* py_object, DLManagedTensorVersioned** out);
  int (*managed_tensor_to_py_object_no_sync)(DLManagedTensorVersioned* tensor, void** out_py_object);
  int (*dltensor_from_py_object_no_sync)(void* py_object, DLTensor* out);  // may be null
  int (*current_work_stream)(int32_t device_type, int32_t device_id, void** out_current_stream);
};

}  // extern "C"
