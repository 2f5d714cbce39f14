"""``npu::sgd_step``, a step of SGD on lists of tensors, and its in-place form."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from torch.optim.sgd import sgd

from npu_passes import _torch
from npu_passes.ops.training.list_optimizer import ListOptimizer
from npu_passes.ops.training.optimizer_lists import Group

_FOREACH: Callable[..., None] = sgd


def _step_group(group: Group, **numbers: Any) -> None:
    params, grads, buffers = group.columns
    if _has_fused_kernel(group):
        _torch.fused_sgd_(params, grads, buffers, is_first_step=False, **numbers)
    else:
        plain = {**numbers, "lr": float(numbers["lr"])}  # foreach kernels take no tensor
        _FOREACH(params, grads, buffers or [None] * len(params), foreach=True, **plain)


def _bind_group(group: Group) -> Callable[..., None] | None:
    if not _has_fused_kernel(group):
        return None
    return functools.partial(_torch.fused_sgd_, *group.columns, is_first_step=False)


def _has_fused_kernel(group: Group) -> bool:
    """Return whether to use the fused kernel: on CPU, it skips 16-bit parameters (pytorch issue 191763)."""
    param = group.columns[0][0]
    return group.is_on_fused_device and (param.device.type != "cpu" or param.dtype.itemsize > 2)


SGD = ListOptimizer(
    name="sgd_step",
    lists=("params", "grads", "momentum_buffers"),
    steps=(),
    optional="momentum_buffers",
    option="momentum",
    numbers="float momentum, float dampening, float weight_decay, bool nesterov, bool maximize",
    step=_step_group,
    bind=_bind_group,
)
SGD.register()
