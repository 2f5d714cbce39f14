"""Optimizers while a step is traced: other parameters, state and numbers in their places."""

from __future__ import annotations

import collections
import contextlib
import inspect
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.optim import SGD, Optimizer

from npu_runtime._torch.tracing import compiling, plain_step
from npu_runtime.errors import TracingError
from npu_runtime.training.tracing import hyperparameters

# The implementations that keep all numbers in tensors: none asks a tensor for its content.
_TRACEABLE = {"foreach": True, "capturable": True, "fused": None}
_INSTEAD = {
    "LBFGS": "it evaluates the loss several times in a step, as often as the data wants it; use AdamW",
    "Adafactor": "it compares the content of tensors in Python; use AdamW, or RMSprop for less state",
    "SparseAdam": "its gradients are sparse; use Adam, with sparse=False in the embedding",
}


class UnknownStateError(TracingError):
    """Only a first step tells what state an optimizer keeps."""


# The entries of ``optimizer.state`` of each parameter, in the order of the parameters.
State = Sequence[Mapping[str, torch.Tensor]]


def require_traceable(optimizer: Optimizer) -> None:
    """Refuse an optimizer whose step is no graph, or does more than its step.

    Raises:
        TracingError: Says why, and what to use instead.
    """
    name = type(optimizer).__name__
    if name in _INSTEAD and type(optimizer).__module__.startswith("torch.optim"):
        raise TracingError(
            f"{name} cannot be traced: {_INSTEAD[name].partition(';')[0]}",
            fix=_INSTEAD[name].partition("; ")[2],
        )
    hooks = [*optimizer._optimizer_step_pre_hooks.values(), *optimizer._optimizer_step_post_hooks.values()]
    if hooks:
        raise TracingError(
            f"{name} has hooks on its step, which would run once, while it is traced, and never again",
            fix="call what they do behind the step, and remove them",
        )


def parameters_of(optimizer: Optimizer) -> list[torch.Tensor]:
    """Return the parameters of an optimizer, group by group."""
    return [tensor for group in optimizer.param_groups for tensor in group["params"]]


def state_of(optimizer: Optimizer) -> list[dict[str, torch.Tensor]] | None:
    """Return the state before the next step; None where only a first step tells what it consists of.

    It is what the optimizer has, or what its first step would begin with.

    Raises:
        TracingError: It counts in numbers of Python, which would stay what they are.
    """
    parameters = parameters_of(optimizer)
    found: list[dict[str, Any]] = [dict(optimizer.state.get(item, {})) for item in parameters]
    if any(item.requires_grad and not entries for item, entries in zip(parameters, found, strict=True)):
        initial = _initial(optimizer)
        if initial is None:
            return None
        found = [entries or first for entries, first in zip(found, initial, strict=True)]
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


def _initial(optimizer: Optimizer) -> list[dict[str, Any]] | None:
    if not hasattr(optimizer, "_init_group"):
        return [{} for _ in parameters_of(optimizer)] if _is_stateless(optimizer) else None
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
        swapped(optimizer, stand_ins, [{} for _ in stand_ins], [_TRACEABLE] * len(optimizer.param_groups)),
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


def _is_stateless(optimizer: Optimizer) -> bool:
    """Whether the code of a step never refers to ``self.state``."""
    try:
        return ".state" not in inspect.getsource(type(optimizer))
    except (OSError, TypeError):
        return False


def _momentum_buffers(optimizer: SGD) -> list[dict[str, Any]] | None:
    """Return zeros, with which the first step is the same as all others; not so with dampening."""
    entries: list[dict[str, Any]] = []
    for group in optimizer.param_groups:
        if group["momentum"] and group["dampening"]:
            return None
        for item in group["params"]:
            has_one = group["momentum"] and item.requires_grad
            entries.append(
                {"momentum_buffer": torch.zeros_like(item, requires_grad=False)} if has_one else {}
            )
    return entries


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


@contextlib.contextmanager
def traceable(
    optimizer: Optimizer,
    prefix: str,
    parameters: Sequence[torch.Tensor],
    state: State,
    numbers: Mapping[str, Any],
    before_step: Any,
) -> Iterator[None]:
    """Let an optimizer work on FakeTensors and open numbers, such that its step can be traced.

    Args:
        optimizer: Is as it was behind the context.
        prefix: Of the names of its groups.
        parameters: In the order of its groups.
        state: Of each parameter.
        numbers: The open numbers, by name.
        before_step: Called before each step.

    Raises:
        TracingError: A step counts in Python.
    """
    groups = [
        {
            **_TRACEABLE,
            **hyperparameters.replaced(
                {key: value for key, value in group.items() if key not in _TRACEABLE},
                hyperparameters.group_prefix(prefix, index),
                lambda name, _: numbers[name],
            ),
        }
        for index, group in enumerate(optimizer.param_groups)
    ]
    step = plain_step(optimizer)

    def traced_step(closure: Any = None) -> None:
        if closure is not None:
            raise TracingError(
                f"{type(optimizer).__name__}.step was given a closure",
                fix="compute loss and gradients before the step",
            )
        before_step()
        with compiling():
            step()
        _write_replaced(optimizer, parameters, state)

    own = vars(optimizer).get("step")
    with swapped(optimizer, parameters, state, groups):
        given = [dict(group) for group in optimizer.param_groups]
        kept = {item: set(entries) for item, entries in zip(parameters, state, strict=True)}
        optimizer.step = traced_step  # type: ignore[method-assign,assignment]
        attributes = dict(vars(optimizer))
        try:
            yield
            _require_unchanged(optimizer, given)
            _require_same_state(optimizer, kept)
            _require_same_attributes(optimizer, attributes)
        finally:
            vars(optimizer).update(attributes)
            if own is None:
                del optimizer.step
            else:
                optimizer.step = own  # type: ignore[method-assign]


def _require_unchanged(optimizer: Optimizer, given: Sequence[Mapping[str, Any]]) -> None:
    for index, (group, before) in enumerate(zip(optimizer.param_groups, given, strict=True)):
        for key, value in group.items():
            if key != "params" and value is not before.get(key):
                raise TracingError(
                    f"the step of {type(optimizer).__name__} changes {key!r} of its group {index}: a graph would not",
                    fix="keep what a step changes in optimizer.state, as a tensor; change hyperparameters between steps",
                )


def _require_same_attributes(optimizer: Optimizer, before: Mapping[str, Any]) -> None:
    for key, value in vars(optimizer).items():
        if key in before and value is not before[key]:
            raise TracingError(
                f"the step of {type(optimizer).__name__} changes its attribute {key!r}: a graph would not",
                fix="keep what a step changes in optimizer.state, as a tensor",
            )


def _write_replaced(optimizer: Optimizer, parameters: Sequence[torch.Tensor], state: State) -> None:
    """Make ``state[key] = new`` a write into the tensor that is there."""
    pairs = []
    for item, entries in zip(parameters, state, strict=True):
        now = optimizer.state.get(item, {})
        for key, old in entries.items():
            new = now.get(key)
            if new is old:
                continue
            if not isinstance(new, torch.Tensor) or new.shape != old.shape or new.dtype != old.dtype:
                raise TracingError(
                    f"the step of {type(optimizer).__name__} replaces {key!r} of its state by what is of another type",
                    fix="keep it a tensor of the same shape and dtype",
                )
            pairs.append((old, new.detach().clone()))  # all of them first: entries may change places
            now[key] = old
    for old, new in pairs:
        old.copy_(new)


def _require_same_state(optimizer: Optimizer, kept: Mapping[torch.Tensor, set[str]]) -> None:
    for item, entries in optimizer.state.items():
        new = {key for key, value in entries.items() if value is not None} - kept.get(item, set())
        if new:
            raise UnknownStateError(
                f"the step of {type(optimizer).__name__} adds {', '.join(sorted(new))} to its state: the next would be another",
                fix="take one step without the graph before: loss.backward(); optimizer.step()",
            )
