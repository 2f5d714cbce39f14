/* The C interface of kernels. Plain data, C99: a shared library that includes this one header can bring ops and
 * kernels of its own. It exports `npu_kernel_library_v1`; npu_cuda.load_library(path) calls it once, checks what it
 * returns, and takes all of it or nothing. Everything it points to must stay valid for the life of the process.
 *
 * Every struct that may grow begins with its size: set it to sizeof. A library works with each npu-cuda whose major
 * version of this interface is the same and whose minor version is not older.
 */
#ifndef NPU_CUDA_KERNEL_H
#define NPU_CUDA_KERNEL_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define NPU_ABI_MAJOR 1
#define NPU_ABI_MINOR 1
#define NPU_MAX_RANK 8
/* The id of a schema of attributes from its four letters, which are its bytes in memory. */
#define NPU_FOURCC(a, b, c, d) \
  ((uint32_t)(a) | (uint32_t)(b) << 8 | (uint32_t)(c) << 16 | (uint32_t)(d) << 24)

typedef enum npu_status_code {
  NPU_OK = 0,
  NPU_INVALID_ARGUMENT = 1, /* the caller is wrong: counts, pointers, devices, attributes, overlaps */
  NPU_NOT_IMPLEMENTED = 2,  /* no kernel takes this */
  NPU_INTERNAL = 3,         /* we are wrong */
  NPU_DEVICE_ERROR = 4,     /* the device or its driver failed */
  NPU_UNAVAILABLE = 5       /* not in this build, or not on this machine */
} npu_status_code;

/* What failed. Text is cut to fit; the one who calls provides the struct. */
typedef struct npu_error {
  char text[512];
} npu_error;

/* As in DLPack: code 0 int, 1 uint, 2 float, 4 bfloat, 5 complex, 6 bool; bits of one lane. */
typedef struct npu_dtype {
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
} npu_dtype;

/* As in DLPack. */
typedef enum npu_device_type { NPU_CPU = 1, NPU_CUDA = 2 } npu_device_type;

enum { NPU_TENSOR_CONTIGUOUS = 1 };

/* A tensor in memory that somebody else owns. Where kernels are chosen before memory is known, `data` is NULL and
 * `alignment` is what is promised of it. */
typedef struct npu_tensor {
  void* data;                    /* the first element; NULL also where numel is 0 */
  int64_t numel;                 /* elements */
  int64_t shape[NPU_MAX_RANK];   /* rank entries are meant */
  int64_t strides[NPU_MAX_RANK]; /* in elements; not negative */
  int32_t rank;
  npu_dtype dtype;
  int32_t device_type; /* npu_device_type */
  int32_t device_id;
  uint32_t flags;     /* NPU_TENSOR_CONTIGUOUS */
  uint32_t alignment; /* of data, in bytes: the largest power of two that divides it, at most 256 */
} npu_tensor;

/* Attributes of an op, packed, little-endian; schema_id says how to read them. schema_id 0 with no bytes stands for
 * the defaults of the op. Whoever calls a kernel has checked that id and size are those of the op. */
typedef struct npu_attrs {
  uint32_t schema_id;
  uint32_t bytes;
  const void* data;
} npu_attrs;

/* One call of an op. */
typedef struct npu_call {
  uint32_t struct_size;
  int32_t num_inputs;
  int32_t num_outputs;
  int32_t compute_capability; /* 90 stands for 9.0; 0 on the CPU */
  const npu_tensor* inputs;
  const npu_tensor* outputs;
  npu_attrs attrs;
  void* workspace; /* 256-byte aligned; NULL until launch */
  uint64_t workspace_bytes;
  void* stream; /* cudaStream_t, never NULL at launch; of no meaning on the CPU */
  void* state;  /* what prepare made; NULL without */
} npu_call;

typedef struct npu_cost {
  double bytes; /* read and written */
  double flops; /* a multiplication and an addition are two */
} npu_cost;

enum {
  NPU_KERNEL_CAPTURE_SAFE = 1, /* launch neither allocates nor waits, and touches nothing but the call's memory */
  NPU_KERNEL_DETERMINISTIC = 2 /* the same inputs give the same bits */
};

/* A kernel: one way to compute an op on one kind of device. Functions return an npu_status_code, and fill in `error`
 * where it is not NPU_OK. They are called from many threads at once. */
typedef struct npu_kernel {
  uint32_t struct_size;
  const char* op;        /* the name of the op, ours ("EltwiseRelu") or the library's own */
  const char* kernel_id; /* unique in the process: "acme.relu.f32" */
  int32_t priority;      /* the highest that supports a call runs it; ours have 0 to 100 */
  uint32_t flags;        /* NPU_KERNEL_... */
  int32_t device_type;   /* npu_device_type */
  int32_t min_compute_capability; /* 0: any */
  int32_t max_compute_capability; /* 0: any */

  /* Says whether this kernel takes such a call; if not, why. Reads descriptions only: data may be NULL, and no
   * function of the device is called. */
  int32_t (*supported)(const npu_call* call, npu_error* error);
  /* Launches on call->stream. It checks what supported checks, again. */
  int32_t (*launch)(const npu_call* call, npu_error* error);

  /* The rest may be NULL. Bytes of workspace that launch needs for such a call. */
  uint64_t (*workspace_bytes)(const npu_call* call);
  /* Does once what would disturb a launch (loading code, choosing algorithms); *state goes into call->state. */
  int32_t (*prepare)(const npu_call* call, void** state, npu_error* error);
  void (*release)(void* state);
  npu_cost (*cost)(const npu_call* call);
} npu_kernel;

/* One attribute, by the letter that Python's struct module has for it: i int32, I uint32, q int64, Q uint64, f float,
 * d double. Attributes lie one after the other, without padding. */
typedef struct npu_attr_field {
  const char* name;
  double default_value;
  char code;
} npu_attr_field;

/* An op that a library brings. Outputs lie in the memory of no input, but for those stated in `in_place`. */
typedef struct npu_op {
  uint32_t struct_size;
  const char* name; /* unique in the process: "acme.softmax" */
  int32_t min_inputs, max_inputs;
  int32_t num_outputs;
  uint64_t in_place[8];    /* per output the inputs that it may be: bit 0 for input 0; same shape, strides and dtype */
  uint32_t schema_id;      /* of its attributes: NPU_FOURCC('S', 'M', 'A', 'X'); 0 where it has none */
  uint32_t attr_bytes;     /* their size */
  uint32_t attrs_required; /* 1: there are no defaults */
  uint32_t num_attr_fields;
  const npu_attr_field* attr_fields; /* so that Python packs them by name; NULL: it has to pack bytes */
  /* Since 1.1. How many of min_inputs and num_outputs, from the last one back, are lists; inputs beyond min_inputs are
   * lists as well. All lists of a call have one length, which is not bounded: its tensors are the single ones, those of
   * the first list, those of the second, ... `in_place` counts a list as one. */
  int32_t input_lists, output_lists;
} npu_op;

typedef struct npu_kernel_library {
  uint32_t struct_size;
  uint16_t abi_major, abi_minor; /* NPU_ABI_MAJOR, NPU_ABI_MINOR */
  const char* name;
  const npu_op* ops;
  uint32_t num_ops;
  const npu_kernel* kernels;
  uint32_t num_kernels;
} npu_kernel_library;

#if defined(_WIN32)
#define NPU_EXPORT __declspec(dllexport)
#else
#define NPU_EXPORT __attribute__((visibility("default")))
#endif

/* What a library exports. NULL where it cannot be used here. */
NPU_EXPORT const npu_kernel_library* npu_kernel_library_v1(void);

#ifdef __cplusplus
}
#endif
#endif
