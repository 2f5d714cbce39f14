/* A library of kernels for the tests. What it offers can be written to, so that a test can spoil one thing of it; and it
 * counts what it is asked to do. The op PREFIX.scale: y = alpha * x, or what `code` asks for.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "npu_cuda/kernel.h"

enum { MAGIC = 0x5ca1e };

typedef struct scale_attrs {
  float alpha;
  int32_t code;   /* what launch returns; 1000 + n: what prepare returns; 2000 + n: what supported returns */
  int32_t silent; /* 1: without a text */
} scale_attrs;

NPU_EXPORT int64_t prepared = 0, released = 0, launched = 0;

static scale_attrs attrs_of(const npu_call* call) {
  scale_attrs attrs = {1.0f, 0, 0};
  if (call->attrs.bytes == sizeof attrs) memcpy(&attrs, call->attrs.data, sizeof attrs);
  return attrs;
}

static int32_t answer(const scale_attrs* attrs, int32_t code, const char* function, npu_error* error) {
  if (code != NPU_OK && !attrs->silent) snprintf(error->text, sizeof error->text, "%s was told to fail", function);
  return code;
}

static int32_t scale_supported(const npu_call* call, npu_error* error) {
  const scale_attrs attrs = attrs_of(call);
  if (call->struct_size != sizeof *call) return answer(&attrs, NPU_INTERNAL, "struct_size", error);
  if (!(call->inputs->flags & call->outputs->flags & NPU_TENSOR_CONTIGUOUS)) {
    return answer(&attrs, NPU_NOT_IMPLEMENTED, "contiguity", error);
  }
  return answer(&attrs, attrs.code >= 2000 ? attrs.code - 2000 : NPU_OK, "supported", error);
}

static uint64_t scale_workspace(const npu_call* call) { return (uint64_t)call->inputs->numel * sizeof(float); }

static int32_t scale_prepare(const npu_call* call, void** state, npu_error* error) {
  const scale_attrs attrs = attrs_of(call);
  int32_t* made = malloc(sizeof *made);
  *state = made;
  if (attrs.code >= 1000) {
    free(made);
    return answer(&attrs, attrs.code - 1000, "prepare", error);
  }
  *made = MAGIC;
  ++prepared;
  return NPU_OK;
}

static void scale_release(void* state) {
  if (*(int32_t*)state == MAGIC) ++released;
  *(int32_t*)state = 0;
  free(state);
}

static int32_t scale_launch(const npu_call* call, npu_error* error) {
  const scale_attrs attrs = attrs_of(call);
  const float* x = call->inputs->data;
  float* y = call->outputs->data;
  float* copy = call->workspace;
  int64_t i;
  if (attrs.code) return answer(&attrs, attrs.code, "launch", error);
  if (!call->state || *(int32_t*)call->state != MAGIC) return answer(&attrs, NPU_INTERNAL, "state", error);
  if ((uintptr_t)copy % 256 || call->workspace_bytes < scale_workspace(call)) {
    return answer(&attrs, NPU_INTERNAL, "workspace", error);
  }
  for (i = 0; i < call->inputs->numel; ++i) copy[i] = x[i];
  for (i = 0; i < call->inputs->numel; ++i) y[i] = attrs.alpha * copy[i];
  ++launched;
  return NPU_OK;
}

static npu_cost scale_cost(const npu_call* call) {
  npu_cost cost;
  cost.bytes = 8.0 * (double)call->inputs->numel;
  cost.flops = (double)call->inputs->numel;
  return cost;
}

NPU_EXPORT npu_attr_field fields[] = {{"alpha", 1.0, 'f'}, {"code", 0.0, 'i'}, {"silent", 0.0, 'i'}};

NPU_EXPORT npu_op ops[] = {{
    sizeof(npu_op), PREFIX ".scale", 1, 1, 1, {1}, NPU_FOURCC(LETTER, 'L', 'S', 'C'), sizeof(scale_attrs), 0, 3, fields,
    0, 0,
}};

NPU_EXPORT npu_kernel kernels[] = {
    {sizeof(npu_kernel), PREFIX ".scale", PREFIX ".scale.host", 0,
     NPU_KERNEL_CAPTURE_SAFE | NPU_KERNEL_DETERMINISTIC, NPU_CPU, 0, 0, scale_supported, scale_launch, scale_workspace,
     scale_prepare, scale_release, scale_cost},
    {sizeof(npu_kernel), "EltwiseRelu", PREFIX ".relu.cuda", -5, NPU_KERNEL_DETERMINISTIC, NPU_CUDA, 99, 99, /* no device has it */
     scale_supported, scale_launch, NULL, NULL, NULL, NULL},
};

NPU_EXPORT npu_kernel_library library = {
    sizeof(npu_kernel_library), NPU_ABI_MAJOR, NPU_ABI_MINOR, PREFIX, ops, 1, kernels, 2,
};

NPU_EXPORT const npu_kernel_library* offered = &library;

NPU_EXPORT const npu_kernel_library* npu_kernel_library_v1(void) { return offered; }
