"""``npu::adam_step``, a step of Adam or AdamW on lists of tensors, and its in-place form."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.optim.adam import adam

from npu_passes import _torch
from npu_passes.ops.training.list_optimizer import ListOptimizer
from npu_passes.ops.training.optimizer_lists import Group

_FOREACH: Callable[..., None] = adam


def _step_group(group: Group, *, decoupled: bool, **numbers: Any) -> None:
    if group.is_on_fused_device:
        _bind_increment(group.steps)()
        kernel = _torch.fused_adamw_ if decoupled else _torch.fused_adam_
        kernel(*group.columns, group.steps, **numbers)
    else:
        plain = {**numbers, "lr": float(numbers["lr"])}  # foreach kernels take no tensor
        _FOREACH(*group.columns, group.steps, foreach=True, decoupled_weight_decay=decoupled, **plain)


def _bind_group(group: Group) -> Callable[..., None]:
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
    step=_step_group,
    bind=_bind_group,
)
ADAM.register()
