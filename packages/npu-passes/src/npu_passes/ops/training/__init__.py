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

from npu_passes.ops.training import counters, layers, lstm  # noqa: F401 - they register their ops
from npu_passes.ops.training.optimizers import ADAM, SGD

ADAM_STEP = "npu.adam_step.default"
ADAM_STEP_TENSOR_LR = "npu.adam_step.tensor_lr"
SGD_STEP = "npu.sgd_step.default"
SGD_STEP_TENSOR_LR = "npu.sgd_step.tensor_lr"

# By functional op: a function of its lists of tensors, in the order of the schema, that checks them once
# and returns a function of the numbers, by keyword, which takes the step in place.
BIND: Mapping[str, Callable[..., Callable[..., None]]] = MappingProxyType(
    {
        **dict.fromkeys((ADAM_STEP, ADAM_STEP_TENSOR_LR, "npu.adam_step.tensor_numbers"), ADAM.bind_step),
        **dict.fromkeys((SGD_STEP, SGD_STEP_TENSOR_LR, "npu.sgd_step.tensor_numbers"), SGD.bind_step),
    }
)

__all__ = [
    "ADAM_STEP",
    "ADAM_STEP_TENSOR_LR",
    "BIND",
    "SGD_STEP",
    "SGD_STEP_TENSOR_LR",
]
