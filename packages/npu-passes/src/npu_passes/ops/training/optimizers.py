"""``npu::adam_step`` and ``npu::sgd_step``, steps on lists of tensors, and their in-place forms."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.optim.adam import adam
from torch.optim.sgd import sgd

from npu_passes import _torch
from npu_passes.ops.training.list_optimizer import ListOptimizer
from npu_passes.ops.training.optimizer_lists import Group

_FOREACH_ADAM: Callable[..., None] = adam
_FOREACH_SGD: Callable[..., None] = sgd


def _step_adam(group: Group, *, decoupled: bool, **numbers: Any) -> None:
    if group.is_on_fused_device:
        _bind_increment(group.steps)()
        kernel = _torch.fused_adamw_ if decoupled else _torch.fused_adam_
        kernel(*group.columns, group.steps, **numbers)
    else:
        plain = {**numbers, "lr": float(numbers["lr"])}  # foreach kernels take no tensor
        _FOREACH_ADAM(*group.columns, group.steps, foreach=True, decoupled_weight_decay=decoupled, **plain)


def _bind_adam(group: Group) -> Callable[..., None]:
    """Return the step of a group as two kernel calls."""
    count = _bind_increment(group.steps)
    columns, steps = group.columns, group.steps

    def step(*, decoupled: bool, **numbers: Any) -> None:
        count()
        (_torch.fused_adamw_ if decoupled else _torch.fused_adam_)(*columns, steps, **numbers)

    return step


def _bind_increment(steps: list[Tensor]) -> Callable[[], object]:
    """Return a function that adds 1 to each counter, in as few calls as possible."""
    row = _view_as_one(steps)
    if row is not None:
        one = torch.ones_like(steps[0])  # a Python number would be converted to a tensor in each call
        return lambda: row.add_(one)
    if steps[0].device.type != "cpu":
        return lambda: _torch.foreach_add_(steps, 1)
    # On the CPU, foreach ops call one op per tensor; the fused kernel of SGD is one call: step - (-1) * 1.
    ones = [torch.ones_like(steps[0])] * len(steps)
    numbers = {"lr": -1.0, "momentum": 0.0, "dampening": 0.0, "weight_decay": 0.0}
    flags = {"nesterov": False, "maximize": False, "is_first_step": False}
    return lambda: _torch.fused_sgd_(steps, ones, [], **numbers, **flags)


def _view_as_one(steps: list[Tensor]) -> Tensor | None:
    """Return counters that are adjacent in one storage as one tensor; None if they are not."""
    first = steps[0]
    storage = first.untyped_storage().data_ptr()
    for index, step in enumerate(steps):
        if (
            step.untyped_storage().data_ptr() != storage
            or step.storage_offset() != first.storage_offset() + index
        ):
            return None
    return first.as_strided((len(steps),), (1,))


ADAM = ListOptimizer(
    name="adam_step",
    lists=("params", "grads", "exp_avgs", "exp_avg_sqs", "max_exp_avg_sqs"),
    steps=("steps",),
    optional="max_exp_avg_sqs",
    option="amsgrad",
    numbers="float beta1, float beta2, float eps, float weight_decay, "
    "bool decoupled, bool amsgrad, bool maximize",
    changing=("beta1", "beta2", "eps", "weight_decay"),
    step=_step_adam,
    bind=_bind_adam,
)
ADAM.register()


def _step_sgd(group: Group, **numbers: Any) -> None:
    params, grads, buffers = group.columns
    if _has_fused_kernel(group):
        _torch.fused_sgd_(params, grads, buffers, is_first_step=False, **numbers)
    else:
        plain = {**numbers, "lr": float(numbers["lr"])}  # foreach kernels take no tensor
        _FOREACH_SGD(params, grads, buffers or [None] * len(params), foreach=True, **plain)


def _bind_sgd(group: Group) -> Callable[..., None] | None:
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
    changing=("momentum", "dampening", "weight_decay"),
    step=_step_sgd,
    bind=_bind_sgd,
)
SGD.register()
