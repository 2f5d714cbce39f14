"""The numbers of an optimizer's parameter groups: learning rates, betas, weight decay, ..."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch.optim import Optimizer

_FIXED = (bool, int, str, type(None))


def numbers(optimizers: Mapping[str, Optimizer]) -> dict[str, float]:
    """Return what a step reads anew at each call: every finite float of the groups, by name (``group0.betas.1``)."""
    return {name: value for name, value in _entries(optimizers) if _is_open(value)}


def settings(optimizers: Mapping[str, Optimizer]) -> dict[str, Any]:
    """Return what a step is traced for: everything else in the groups, by name."""
    return {name: value for name, value in _entries(optimizers) if not _is_open(value)}


def replaced(group: Mapping[str, Any], prefix: str, change: Callable[[str, float], Any]) -> dict[str, Any]:
    """Return the entries of a group with ``change(name, value)`` in place of each open number."""

    def changed(name: str, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            value = float(value)
        if isinstance(value, (tuple, list)):
            return type(value)(changed(f"{name}.{index}", item) for index, item in enumerate(value))
        return change(name, value) if _is_open(value) else value

    return {key: changed(f"{prefix}.{key}", value) for key, value in group.items() if key != "params"}


def group_prefix(optimizer: str, index: int) -> str:
    """Return how the entries of a group are called: ``group0``, or ``generator_optimizer.group0``."""
    return f"{optimizer}group{index}"


def _entries(optimizers: Mapping[str, Optimizer]) -> Iterator[tuple[str, Any]]:
    for prefix, optimizer in optimizers.items():
        for index, group in enumerate(optimizer.param_groups):
            for key, value in group.items():
                if key != "params":
                    yield from _leaves(f"{group_prefix(prefix, index)}.{key}", value)


def _leaves(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, (tuple, list)):
        for index, item in enumerate(value):
            yield from _leaves(f"{name}.{index}", item)
    else:
        yield name, float(value) if isinstance(value, torch.Tensor) and value.numel() == 1 else value


def _is_open(value: Any) -> bool:
    return type(value) is float and math.isfinite(value)
