"""The state that an optimizer has, or would begin with."""

from __future__ import annotations

import collections
import contextlib
import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.optim import SGD, Optimizer

from npu_runtime._torch.tracing import compiling
from npu_runtime.errors import TracingError

# The implementations that keep all numbers in tensors: none asks a tensor for its content.
TRACEABLE = {"foreach": True, "capturable": True, "fused": None}
# The entries of ``optimizer.state`` of each parameter, in the order of the parameters.
State = Sequence[Mapping[str, torch.Tensor]]


class UnknownStateError(TracingError):
    """Only a first step tells what state an optimizer keeps."""


def parameters_of(optimizer: Optimizer) -> list[torch.Tensor]:
    """Return the parameters of an optimizer, group by group."""
    return [tensor for group in optimizer.param_groups for tensor in group["params"]]


def state_of(optimizer: Optimizer) -> list[dict[str, torch.Tensor]]:
    """Return the state before the next step: what the optimizer has, or what its first step would begin with.

    Where that is not known, there is none: a trace tells whether the step makes some.

    Raises:
        TracingError: It counts in numbers of Python, which would stay what they are.
    """
    parameters = parameters_of(optimizer)
    found: list[dict[str, Any]] = [dict(optimizer.state.get(item, {})) for item in parameters]
    if any(item.requires_grad and not entries for item, entries in zip(parameters, found, strict=True)):
        found = [entries or first for entries, first in zip(found, _initial(optimizer), strict=True)]
    for entries in found:
        for key, value in list(entries.items()):
            if value is None:
                del entries[key]
            elif not isinstance(value, torch.Tensor):
                raise TracingError(
                    f"{type(optimizer).__name__} keeps {key!r} as {type(value).__name__}: a graph would not change it",
                    fix="keep it as a tensor: state[key] = torch.tensor(0.0)",
                )
    return found


def _initial(optimizer: Optimizer) -> list[dict[str, Any]]:
    if not hasattr(optimizer, "_init_group"):
        return [{} for _ in parameters_of(optimizer)]
    if isinstance(optimizer, SGD):
        return _momentum_buffers(optimizer)
    stand_ins: list[torch.Tensor] = []
    for parameter in parameters_of(optimizer):
        twin = torch.empty_strided(
            parameter.shape, parameter.stride(), dtype=parameter.dtype, device=parameter.device
        ).copy_(parameter.detach())
        twin.requires_grad_(parameter.requires_grad)
        if parameter.requires_grad:
            twin.grad = torch.zeros_like(twin)
        stand_ins.append(twin)
    count = len(inspect.signature(optimizer._init_group).parameters) - 1
    with (
        compiling(),
        swapped(optimizer, stand_ins, [{} for _ in stand_ins], [TRACEABLE] * len(optimizer.param_groups)),
    ):
        for group in optimizer.param_groups:
            optimizer._init_group(group, *[[] for _ in range(count)])
        found = [dict(optimizer.state[item]) if item in optimizer.state else {} for item in stand_ins]
    return _with_counters_side_by_side(found)


def _with_counters_side_by_side(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the state with its counters of steps as parts of one tensor: one call increments them all."""
    rows: dict[Any, list[dict[str, Any]]] = {}
    for entries in found:
        counter = entries.get("step")
        if isinstance(counter, torch.Tensor) and not counter.dim():
            rows.setdefault((counter.dtype, counter.device), []).append(entries)
    for row in rows.values():
        counters = torch.stack([entries["step"] for entries in row]).unbind()
        for entries, counter in zip(row, counters, strict=True):
            entries["step"] = counter
    return found


def _momentum_buffers(optimizer: SGD) -> list[dict[str, Any]]:
    """Return zeros, with which the first step is the same as all others; not so with dampening."""
    return [
        {"momentum_buffer": torch.zeros_like(item, requires_grad=False)}
        if group["momentum"] and not group["dampening"] and item.requires_grad
        else {}
        for group in optimizer.param_groups
        for item in group["params"]
    ]


@contextlib.contextmanager
def swapped(
    optimizer: Optimizer,
    parameters: Sequence[torch.Tensor],
    state: State,
    groups: Sequence[Mapping[str, Any]],
) -> Iterator[None]:
    """Let an optimizer have other parameters, state, and entries of its groups that it has already.

    Args:
        optimizer: Is as it was behind the context.
        parameters: In the order of its groups.
        state: Of each parameter.
        groups: What to replace in each group.
    """
    before = optimizer.state, [dict(group) for group in optimizer.param_groups]
    remaining = iter(parameters)
    try:
        for group, entries in zip(optimizer.param_groups, groups, strict=True):
            group["params"] = [next(remaining) for _ in group["params"]]
            group.update({key: value for key, value in entries.items() if key in group})
        optimizer.state = collections.defaultdict(
            dict, {item: dict(entries) for item, entries in zip(parameters, state, strict=True) if entries}
        )
        yield
    finally:
        optimizer.state = before[0]
        for group, entries in zip(optimizer.param_groups, before[1], strict=True):
            group.clear()
            group.update(entries)
