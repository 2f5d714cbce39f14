"""Primitives of training steps as functions, for steps written by hand.

Each calls one op of the namespace ``npu``, which is one node of a graph when the step is traced. Functions
whose name ends with an underscore, and `bias_corr_out`, write to their arguments; functionalization
replaces their ops by ops that return new tensors.

In: tensors. Out: the results of ``torch.ops.npu.*``. Open `layers.py` first.
"""

from __future__ import annotations

from npu_runtime.functional.layers import grad_zero_, linear, linear_activation, mse_grad, relu, relu_backward
from npu_runtime.functional.optimizers import adam_step_, bias_corr_out, sgd_step_, step_inc_

__all__ = [
    "adam_step_",
    "bias_corr_out",
    "grad_zero_",
    "linear",
    "linear_activation",
    "mse_grad",
    "relu",
    "relu_backward",
    "sgd_step_",
    "step_inc_",
]
