"""Hyperparameters in an optimizer's parameter groups: learning rates, betas, weight decay, ...

Open numbers are inputs of the graph, read at each call; everything else is a setting, which a step is traced
for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.optim import Optimizer

from npu_runtime.codegen.compiled_function import load_function

_IMPLEMENTATION_SWITCHES = ("foreach", "fused", "capturable", "differentiable")


def open_numbers(optimizers: Mapping[str, Optimizer]) -> dict[str, float]:
    """Return the open numbers, which each call reads: every finite float, by name (``group0.betas.1``)."""
    return {name: value for name, value in _entries(optimizers) if is_open(value)}


def settings(optimizers: Mapping[str, Optimizer]) -> dict[str, Any]:
    """Return the settings, which a step is traced for: all other entries of the groups, by name."""
    return {name: value for name, value in _entries(optimizers) if not is_open(value)}


def fixed_numbers(optimizers: Mapping[str, Optimizer]) -> dict[str, float]:
    """Return the numbers among the `settings`: a call of the graph takes them with these values only."""
    return {name: value for name, value in settings(optimizers).items() if type(value) in (int, float)}


def switches(optimizers: Mapping[str, Optimizer]) -> dict[str, bool]:
    """Return the booleans among the `settings`, except those that only choose an implementation."""
    booleans = {name: value for name, value in settings(optimizers).items() if type(value) is bool}
    return {
        name: value
        for name, value in booleans.items()
        if name.rpartition(".")[2] not in _IMPLEMENTATION_SWITCHES
    }


def replace_numbers(
    group: Mapping[str, Any], prefix: str, change: Callable[[str, float], Any]
) -> dict[str, Any]:
    """Return the entries of a group with ``change(name, value)`` instead of each open number."""

    def changed(name: str, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            value = float(value)
        if isinstance(value, (tuple, list)):
            return type(value)(changed(f"{name}.{index}", item) for index, item in enumerate(value))
        return change(name, value) if is_open(value) else value

    return {key: changed(f"{prefix}.{key}", value) for key, value in group.items() if key != "params"}


def group_prefix(optimizer: str, index: int) -> str:
    """Return the prefix of the names of a group: ``group0``, or ``generator_optimizer.group0``."""
    return f"{optimizer}group{index}"


def _entries(optimizers: Mapping[str, Optimizer]) -> Iterator[tuple[str, Any]]:
    for prefix, optimizer in optimizers.items():
        for index, group in enumerate(optimizer.param_groups):
            for key, value in group.items():
                if key != "params":
                    yield from _flatten_entry(f"{group_prefix(prefix, index)}.{key}", value)


def _flatten_entry(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, (tuple, list)):
        for index, item in enumerate(value):
            yield from _flatten_entry(f"{name}.{index}", item)
    else:
        yield name, float(value) if isinstance(value, torch.Tensor) and value.numel() == 1 else value


def is_open(value: Any) -> bool:
    """Return whether each call reads an entry: a finite float, several, or a tensor of one element."""
    if isinstance(value, (tuple, list)):
        return bool(value) and all(map(is_open, value))
    if isinstance(value, torch.Tensor):
        return value.numel() == 1
    return type(value) is float and math.isfinite(value)


def make_reader(optimizers: Mapping[str, Optimizer], names: Sequence[str]) -> Callable[[], list[float]]:
    """Return a function that returns the current values of open numbers, by generated code.

    While all of them are the same floats, it returns the same list.

    Args:
        optimizers: By prefix; their groups must not be replaced.
        names: The names of the numbers, in the order in which they are returned.
    """
    entries, groups = write_entries(optimizers, names)
    last = {f"n{index}": entry for index, entry in enumerate(entries)}
    if not last:
        return list
    space = {"unread": object(), "values": [], **groups}
    text = _READER.format(
        names=", ".join(last),
        first=next(iter(last)),
        same=" and ".join(f"{entry} is {name}" for name, entry in last.items()),
        entries=", ".join(last.values()),
        floats=" and ".join(f"type({name}) is float" for name in last),
        values=", ".join(f"float({name})" for name in last),
    )
    read: Callable[[], list[float]] = load_function(
        "read", "hyperparameters", text, {**space, **dict.fromkeys(last, space["unread"])}
    )
    return read


def write_entries(
    optimizers: Mapping[str, Optimizer], names: Sequence[str]
) -> tuple[list[str], dict[str, Any]]:
    """Return expressions of open numbers, in the order of their names, and the groups that they name."""
    groups: dict[str, Any] = {}
    entries: dict[str, str] = {}
    for prefix, optimizer in optimizers.items():
        for index, group in enumerate(optimizer.param_groups):
            variable = f"group{len(groups)}"
            groups[variable] = group
            for key, value in group.items():
                for name, path in _paths(f"{group_prefix(prefix, index)}.{key}", value):
                    entries[name] = f"{variable}[{key!r}]{path}"
    return [entries[name] for name in names], groups


# A tensor may have other content in the next call.
_READER = """\
def read():
    global {names}, values
    if {same}:
        return values
    {names} = {entries}
    values = [{values}]
    if not ({floats}):
        {first} = unread
    return values
"""


def _paths(name: str, value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, (tuple, list)):
        for index, item in enumerate(value):
            yield from _paths(f"{name}.{index}", item, f"{path}[{index}]")
    else:
        yield name, path
