"""The primitives of a training step as functions, for steps written by hand.

Each calls one op of the namespace ``npu``, which is one node of a graph when the step is traced. Functions whose name
ends with an underscore, and `bias_corr_out`, write to what they are given; functionalization puts the op that returns
new tensors in their place.
"""

from __future__ import annotations

from npu_runtime.functional.adam import adam_step, adam_step_, bias_corr_out, step_inc_
from npu_runtime.functional.layers import grad_zero_, linear, linear_activation, mse_grad, relu, relu_backward
from npu_runtime.functional.sgd import sgd_step, sgd_step_

__all__ = [
    "adam_step",
    "adam_step_",
    "bias_corr_out",
    "grad_zero_",
    "linear",
    "linear_activation",
    "mse_grad",
    "relu",
    "relu_backward",
    "sgd_step",
    "sgd_step_",
    "step_inc_",
]
