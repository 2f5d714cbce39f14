"""Increment of all step counters at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from npu_passes import _torch


def increment(steps: list[Tensor]) -> None:
    """Add 1 to each counter: 0-d tensors of one device and dtype."""
    if steps[0].device.type != "cpu":
        _torch.foreach_add_(steps, 1)
        return
    # On the CPU, foreach ops call one op per tensor; the fused kernel of SGD is one call: step - (-1) * 1.
    ones = [torch.ones_like(steps[0])] * len(steps)
    _fused_increment(steps, ones)


def bind_increment(steps: Sequence[Tensor]) -> Callable[[], object]:
    """Return a function that adds 1 to each counter, in as few calls as possible."""
    row = _view_as_one(steps)
    if row is not None:
        one = torch.ones_like(steps[0])  # a Python number would be converted to a tensor in each call
        return lambda: row.add_(one)
    counters = list(steps)
    if counters[0].device.type != "cpu":
        return lambda: _torch.foreach_add_(counters, 1)
    ones = [torch.ones_like(counters[0])] * len(counters)
    return lambda: _fused_increment(counters, ones)


def _fused_increment(steps: list[Tensor], ones: list[Tensor]) -> None:
    _torch.fused_sgd_(
        steps,
        ones,
        [],
        weight_decay=0.0,
        momentum=0.0,
        lr=-1.0,
        dampening=0.0,
        nesterov=False,
        maximize=False,
        is_first_step=False,
    )


def _view_as_one(steps: Sequence[Tensor]) -> Tensor | None:
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
