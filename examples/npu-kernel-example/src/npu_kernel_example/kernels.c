/* Two kernels for the CPU: a relu that is taken before the one of npu-cuda, and an op of this library's own. The only
 * header is npu_cuda/kernel.h, which says what the functions below promise.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "npu_cuda/kernel.h"

/* Says why, and returns the code. */
static int32_t fail(npu_error* error, int32_t code, const char* reason) {
  strncpy(error->text, reason, sizeof error->text - 1);
  error->text[sizeof error->text - 1] = '\0';
  return code;
}

static int is_float32(const npu_tensor* tensor) {
  return tensor->dtype.code == 2 && tensor->dtype.bits == 32 && tensor->dtype.lanes == 1;
}

static int is_same_shape(const npu_tensor* a, const npu_tensor* b) {
  return a->rank == b->rank && memcmp(a->shape, b->shape, (size_t)a->rank * sizeof a->shape[0]) == 0;
}

/* What both kernels take: float32, contiguous, x and y of one shape. */
static int32_t is_supported(const npu_call* call, npu_error* error) {
  const npu_tensor *x = call->inputs, *y = call->outputs;
  if (!is_float32(x) || !is_float32(y)) return fail(error, NPU_NOT_IMPLEMENTED, "only float32 is supported");
  if (!is_same_shape(x, y)) return fail(error, NPU_NOT_IMPLEMENTED, "x and y differ in shape");
  if (!(x->flags & y->flags & NPU_TENSOR_CONTIGUOUS)) return fail(error, NPU_NOT_IMPLEMENTED, "not contiguous");
  return NPU_OK;
}

/* EltwiseRelu: y = max(x, 0); NaN stays NaN; y may be x. */

static int32_t relu_launch(const npu_call* call, npu_error* error) {
  const int32_t status = is_supported(call, error);
  const float* x = call->inputs->data;
  float* y = call->outputs->data;
  int64_t i;
  if (status != NPU_OK) return status;
  for (i = 0; i < call->inputs->numel; ++i) y[i] = x[i] < 0.0f ? 0.0f : x[i];
  return NPU_OK;
}

/* npu_kernel_example.window: a batch of signals x [signals, samples] loses the signal that is common to all (the mean
 * over the batch), and is multiplied by `gain` and a Hann window: w[i] = 0.5 - 0.5 * cos(2 pi i / (samples - 1)).
 * y may be x. The window depends on the shape only, and is computed in prepare; the mean is kept in the workspace.
 */

typedef struct window_attrs {
  float gain;
} window_attrs;

static const npu_attr_field window_fields[] = {{"gain", 1.0, 'f'}};

static int32_t window_supported(const npu_call* call, npu_error* error) {
  if (call->inputs->rank != 2) return fail(error, NPU_NOT_IMPLEMENTED, "x is not [signals, samples]");
  return is_supported(call, error);
}

static uint64_t window_workspace(const npu_call* call) { return (uint64_t)call->inputs->shape[1] * sizeof(float); }

static int32_t window_prepare(const npu_call* call, void** state, npu_error* error) {
  const double pi = 3.14159265358979323846;
  const int64_t samples = call->inputs->shape[1];
  float* window = malloc((size_t)(samples + 1) * sizeof *window); /* not of 0 bytes */
  int64_t i;
  if (window == NULL) return fail(error, NPU_INTERNAL, "no memory for the window");
  for (i = 0; i < samples; ++i) {
    window[i] = samples == 1 ? 1.0f : (float)(0.5 - 0.5 * cos(2.0 * pi * (double)i / (double)(samples - 1)));
  }
  *state = window;
  return NPU_OK;
}

static int32_t window_launch(const npu_call* call, npu_error* error) {
  const int32_t status = window_supported(call, error);
  const int64_t signals = call->inputs->shape[0], samples = call->inputs->shape[1];
  const float *x = call->inputs->data, *window = call->state;
  float *y = call->outputs->data, *mean = call->workspace;
  window_attrs attrs = {1.0f}; /* the defaults, where the caller gives no attributes */
  int64_t row, i;
  if (status != NPU_OK) return status;
  if (call->attrs.bytes == sizeof attrs) memcpy(&attrs, call->attrs.data, sizeof attrs);
  for (i = 0; i < samples; ++i) mean[i] = 0.0f;
  for (row = 0; row < signals; ++row) {
    for (i = 0; i < samples; ++i) mean[i] += x[row * samples + i] / (float)signals;
  }
  for (row = 0; row < signals; ++row) {
    for (i = 0; i < samples; ++i) {
      y[row * samples + i] = attrs.gain * window[i] * (x[row * samples + i] - mean[i]);
    }
  }
  return NPU_OK;
}

/* What npu-cuda asks for. What a table leaves out is 0 or NULL. */

static const npu_op ops[] = {{
    .struct_size = sizeof(npu_op),
    .name = "npu_kernel_example.window",
    .min_inputs = 1,
    .max_inputs = 1,
    .num_outputs = 1,
    .in_place = {1}, /* output 0 may be input 0 */
    .schema_id = NPU_FOURCC('X', 'W', 'I', 'N'),
    .attr_bytes = sizeof(window_attrs),
    .num_attr_fields = 1,
    .attr_fields = window_fields,
}};

static const npu_kernel kernels[] = {
    {
        .struct_size = sizeof(npu_kernel),
        .op = "EltwiseRelu",
        .kernel_id = "npu_kernel_example.relu.f32.host",
        .priority = 60, /* above that of npu-cuda's own */
        .flags = NPU_KERNEL_CAPTURE_SAFE | NPU_KERNEL_DETERMINISTIC,
        .device_type = NPU_CPU,
        .supported = is_supported,
        .launch = relu_launch,
    },
    {
        .struct_size = sizeof(npu_kernel),
        .op = "npu_kernel_example.window",
        .kernel_id = "npu_kernel_example.window.f32.host",
        .flags = NPU_KERNEL_CAPTURE_SAFE | NPU_KERNEL_DETERMINISTIC,
        .device_type = NPU_CPU,
        .supported = window_supported,
        .launch = window_launch,
        .workspace_bytes = window_workspace,
        .prepare = window_prepare,
        .release = free,
    },
};

static const npu_kernel_library library = {
    .struct_size = sizeof(npu_kernel_library),
    .abi_major = NPU_ABI_MAJOR,
    .abi_minor = NPU_ABI_MINOR,
    .name = "npu-kernel-example",
    .ops = ops,
    .num_ops = sizeof ops / sizeof ops[0],
    .kernels = kernels,
    .num_kernels = sizeof kernels / sizeof kernels[0],
};

NPU_EXPORT const npu_kernel_library* npu_kernel_library_v1(void) { return &library; }
