"""Ops of training steps in the namespace ``npu``: layers, a loss gradient, optimizers and their counters.

Each is one node of a traced graph and has a fake kernel; differentiable ones have a derivative. Each
in-place op of an optimizer, such as ``npu::adam_step_``, has a functional form, ``npu::adam_step``, by
which functionalization replaces it. Importing this package registers the ops; the plugin ``npu-passes``
imports it.

In: nothing; importing it registers the ops. Out: ``torch.ops.npu.*``. Open `layers.py` first.
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

# By functional op: a Python function with the arguments of the in-place op that does the same, without the
# check for overlapping tensors.
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
# By functional op: a function of its lists of tensors, in the order of the schema, that checks them once
# and returns a function of the numbers, by keyword, which takes the step in place.
BIND: Mapping[str, Callable[..., Callable[..., None]]] = MappingProxyType(
    {
        ADAM_STEP: bind_adam_step,
        ADAM_STEP_TENSOR_LR: bind_adam_step,
        SGD_STEP: bind_sgd_step,
        SGD_STEP_TENSOR_LR: bind_sgd_step,
    }
)


def in_place_op(op_type: str) -> str | None:
    """Return the in-place form of a functional op of this package; None for other ops."""
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
