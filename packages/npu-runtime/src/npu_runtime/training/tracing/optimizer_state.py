"""Optimizer state: the current one, or the one that a first step would begin with."""

from __future__ import annotations

import collections
import contextlib
import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.optim import SGD, Optimizer

from npu_runtime._torch.patches import compiler_flag
from npu_runtime.errors import TracingError

# The options of implementations that keep all numbers in tensors: none reads the contents of one in Python.
TRACEABLE = {"foreach": True, "capturable": True, "fused": None}
# The entries of ``optimizer.state`` of each parameter, in the order of the parameters.
State = Sequence[Mapping[str, torch.Tensor]]


class UnknownStateError(TracingError):
    """Error of an optimizer whose state is not known before its first step."""


def parameters_of(optimizer: Optimizer) -> list[torch.Tensor]:
    """Return the parameters of an optimizer, group by group."""
    return [tensor for group in optimizer.param_groups for tensor in group["params"]]


def current_or_initial_state(optimizer: Optimizer) -> list[dict[str, torch.Tensor]]:
    """Return the state before the next step: the current one, or the one that a first step would begin with.

    It is empty where the initial state cannot be predicted: the trace then reveals whether the step creates
    any.

    Raises:
        TracingError: An entry is not a tensor, such as a counter: a graph would not change it.
    """
    parameters = parameters_of(optimizer)
    state: list[dict[str, Any]] = [dict(optimizer.state.get(item, {})) for item in parameters]
    if any(item.requires_grad and not entries for item, entries in zip(parameters, state, strict=True)):
        state = [entries or first for entries, first in zip(state, _initial_state(optimizer), strict=True)]
    for entries in state:
        for key, value in list(entries.items()):
            if value is None:
                del entries[key]
            elif not isinstance(value, torch.Tensor):
                raise TracingError(
                    f"{type(optimizer).__name__} keeps {key!r} as {type(value).__name__}: "
                    "a graph would not change it",
                    fix="keep it as a tensor: state[key] = torch.tensor(0.0)",
                )
    return state


def _initial_state(optimizer: Optimizer) -> list[dict[str, Any]]:
    """Return the initial state, by running the optimizer's ``_init_group`` on copies of parameters.

    ``_init_group`` is private, but most optimizers of torch.optim have it: it creates missing state, and
    appends to one list per further argument.
    """
    if not hasattr(optimizer, "_init_group"):
        return [{} for _ in parameters_of(optimizer)]
    if isinstance(optimizer, SGD):
        return _momentum_buffers(optimizer)
    copies: list[torch.Tensor] = []  # with zero gradients: parameters without one are skipped
    for parameter in parameters_of(optimizer):
        clone = torch.empty_strided(
            parameter.shape, parameter.stride(), dtype=parameter.dtype, device=parameter.device
        ).copy_(parameter.detach())
        clone.requires_grad_(parameter.requires_grad)
        if parameter.requires_grad:
            clone.grad = torch.zeros_like(clone)
        copies.append(clone)
    count = len(inspect.signature(optimizer._init_group).parameters) - 1
    with (
        compiler_flag(),
        override_optimizer(
            optimizer, copies, [{} for _ in copies], [TRACEABLE] * len(optimizer.param_groups)
        ),
    ):
        for group in optimizer.param_groups:
            optimizer._init_group(group, *[[] for _ in range(count)])
        state = [dict(optimizer.state[item]) if item in optimizer.state else {} for item in copies]
    return _merge_step_counters(state)


def _merge_step_counters(state: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the state with its step counters as slices of one tensor, which one call can increment."""
    rows: dict[Any, list[dict[str, Any]]] = {}
    for entries in state:
        counter = entries.get("step")
        if isinstance(counter, torch.Tensor) and not counter.dim():
            rows.setdefault((counter.dtype, counter.device), []).append(entries)
    for row in rows.values():
        counters = torch.stack([entries["step"] for entries in row]).unbind()
        for entries, counter in zip(row, counters, strict=True):
            entries["step"] = counter
    return state


def _momentum_buffers(optimizer: SGD) -> list[dict[str, Any]]:
    """Return zero buffers, with which the first step computes the same as all others; none with dampening."""
    return [
        {"momentum_buffer": torch.zeros_like(item, requires_grad=False)}
        if group["momentum"] and not group["dampening"] and item.requires_grad
        else {}
        for group in optimizer.param_groups
        for item in group["params"]
    ]


@contextlib.contextmanager
def override_optimizer(
    optimizer: Optimizer,
    parameters: Sequence[torch.Tensor],
    state: State,
    groups: Sequence[Mapping[str, Any]],
) -> Iterator[None]:
    """Replace the parameters, the state and entries of the groups of an optimizer, for the block.

    Args:
        optimizer: Restored after the block.
        parameters: In the order of its groups.
        state: The state of each parameter.
        groups: The replacements in each group; keys that a group does not have are ignored.
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
