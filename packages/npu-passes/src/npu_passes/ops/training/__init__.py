"""The ops of a training step in the namespace ``npu``: layers, a loss gradient, optimizers and what these count with.

Each is one node of a traced graph and has a fake kernel; those with a derivative are differentiated. What an optimizer
does in place, ``npu::adam_step_`` for one, has a functional form, ``npu::adam_step``, which functionalization puts in its
place. Importing this package registers them; the plugin ``npu-passes`` does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from npu_passes.ops.training import layers  # noqa: F401 - registers its ops
from npu_passes.ops.training.adam import adam_step_, bind_adam_step
from npu_passes.ops.training.counters import bias_corr_out, grad_zero_, step_inc_
from npu_passes.ops.training.sgd import bind_sgd_step, sgd_step_

LINEAR = "npu.linear.default"
RELU = "npu.relu.default"
RELU_BACKWARD = "npu.relu_backward.default"
MSE_GRAD = "npu.mse_grad.default"
GRAD_ZERO = "npu.grad_zero.default"
STEP_INC = "npu.step_inc.default"
BIAS_CORR = "npu.bias_corr.default"
ADAM_STEP = "npu.adam_step.default"
ADAM_STEP_TENSOR_LR = "npu.adam_step.tensor_lr"
SGD_STEP = "npu.sgd_step.default"
SGD_STEP_TENSOR_LR = "npu.sgd_step.tensor_lr"

# By functional op: what does the same in place, as a plain function that takes what the in-place op takes and does not
# look whether tensors overlap.
IN_PLACE: Mapping[str, Callable[..., None]] = MappingProxyType(
    {
        GRAD_ZERO: grad_zero_,
        STEP_INC: step_inc_,
        BIAS_CORR: bias_corr_out,
        ADAM_STEP: adam_step_,
        ADAM_STEP_TENSOR_LR: adam_step_,
        SGD_STEP: sgd_step_,
        SGD_STEP_TENSOR_LR: sgd_step_,
    }
)
# By functional op: a function of its lists of tensors, in the order of the schema, that looks at them once and returns a
# function of the numbers, by keyword, which takes the step in place.
BIND: Mapping[str, Callable[..., Callable[..., None]]] = MappingProxyType(
    {
        ADAM_STEP: bind_adam_step,
        ADAM_STEP_TENSOR_LR: bind_adam_step,
        SGD_STEP: bind_sgd_step,
        SGD_STEP_TENSOR_LR: bind_sgd_step,
    }
)


def in_place_op(op_type: str) -> str | None:
    """Return the op that does what a functional op of this package does, in place; None if there is none."""
    namespace, name, overload = op_type.split(".")
    suffix = "_out" if op_type == BIAS_CORR else "_"
    return f"{namespace}.{name}{suffix}.{overload}" if op_type in IN_PLACE else None


__all__ = [
    "ADAM_STEP",
    "ADAM_STEP_TENSOR_LR",
    "BIAS_CORR",
    "BIND",
    "GRAD_ZERO",
    "IN_PLACE",
    "LINEAR",
    "MSE_GRAD",
    "RELU",
    "RELU_BACKWARD",
    "SGD_STEP",
    "SGD_STEP_TENSOR_LR",
    "STEP_INC",
    "in_place_op",
]
