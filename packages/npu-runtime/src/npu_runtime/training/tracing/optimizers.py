"""Tracing of an optimizer's step, with its parameters, state and open numbers replaced by traced ones."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import optim
from torch.optim import Optimizer

from npu_runtime._torch.node_provenance import optimizer_phase
from npu_runtime._torch.patches import compiler_flag
from npu_runtime._torch.registrations import global_step_hooks, has_replaced_step, unwrapped_step
from npu_runtime.errors import TracingError
from npu_runtime.training.tracing import hyperparameters
from npu_runtime.training.tracing.optimizer_state import (
    TRACEABLE,
    State,
    UnknownStateError,
    override_optimizer,
)

_ALTERNATIVES = {
    "LBFGS": "it evaluates the loss a number of times that depends on the data; use AdamW",
    "Adafactor": "it compares the content of tensors in Python; use AdamW, or RMSprop for less state",
    "SparseAdam": "its gradients are sparse; use Adam, with sparse=False in the embedding",
}


def require_traceable(optimizer: Optimizer) -> None:
    """Raise for an optimizer whose step cannot be traced, or has hooks.

    Raises:
        TracingError: The message has the reason, and an alternative.
    """
    name = type(optimizer).__name__
    if name in _ALTERNATIVES and type(optimizer).__module__.startswith("torch.optim"):
        raise TracingError(
            f"{name} cannot be traced: {_ALTERNATIVES[name].partition(';')[0]}",
            fix=_ALTERNATIVES[name].partition("; ")[2],
        )
    own_hooks = (optimizer._optimizer_step_pre_hooks, optimizer._optimizer_step_post_hooks)
    if any(own_hooks) or any(global_step_hooks()):
        raise TracingError(
            f"{name} has hooks on its step, which would run once, while it is traced, and never again",
            fix="do their work after the step, and remove them",
        )
    if has_replaced_step(optimizer):
        raise TracingError(
            f"{name} has a step that was set on the optimizer itself, which a graph would not run",
            fix="define it in a class of its own, a subclass of the optimizer",
        )


# Adam and AdamW have ops of their own for this.
_COUNTED_IN_FLOAT64 = (optim.Adagrad, optim.Adamax, optim.NAdam, optim.RAdam)


@contextlib.contextmanager
def make_traceable(
    optimizer: Optimizer,
    prefix: str,
    parameters: Sequence[torch.Tensor],
    state: State,
    numbers: Mapping[str, Any],
    before_step: Any,
) -> Iterator[None]:
    """Make an optimizer work on fake tensors and open numbers for the block, so that its step can be traced.

    Args:
        optimizer: Restored after the block.
        prefix: The prefix of the names of its groups.
        parameters: As for `override_optimizer`, like the state.
        state: Likewise.
        numbers: The open numbers, by name.
        before_step: Called before each step.

    Raises:
        TracingError: A step changes groups or attributes of the optimizer, which a graph would not.
        UnknownStateError: A step adds entries to the state.
    """
    groups = _traced_groups(optimizer, prefix, numbers)
    step = unwrapped_step(optimizer)

    def traced_step(closure: Any = None) -> None:
        if closure is not None:
            raise TracingError(
                f"{type(optimizer).__name__}.step was given a closure",
                fix="compute loss and gradients before the step",
            )
        before_step()
        # With the flag, torch.optim takes the capturable path without asking for a CUDA device.
        with optimizer_phase(), compiler_flag(), _counting_in_float64(optimizer):
            step()
        _write_replaced_state(optimizer, parameters, state)

    own = vars(optimizer).get("step")
    with override_optimizer(optimizer, parameters, state, groups):
        groups_before = [dict(group) for group in optimizer.param_groups]
        known_keys = {item: set(entries) for item, entries in zip(parameters, state, strict=True)}
        optimizer.step = traced_step  # type: ignore[method-assign,assignment]
        attributes = dict(vars(optimizer))
        try:
            yield
            _require_same_groups(optimizer, groups_before)
            _require_same_state(optimizer, known_keys)
            _require_same_attributes(optimizer, attributes)
        finally:
            vars(optimizer).update(attributes)
            if own is None:
                del optimizer.step
            else:
                optimizer.step = own  # type: ignore[method-assign]


@contextlib.contextmanager
def _counting_in_float64(optimizer: Optimizer) -> Iterator[None]:
    """Let a step read its counters as float64 for the block, as it reads them in eager mode: as numbers.

    The capturable path computes in the dtype of the counter. In float32, ``1 - beta2**step`` of RAdam and
    NAdam loses four digits to cancellation with the default betas.
    """
    if type(optimizer) not in _COUNTED_IN_FLOAT64:
        yield
        return
    counted = [entries for entries in optimizer.state.values() if "step" in entries]
    dtypes = [entries["step"].dtype for entries in counted]
    for entries in counted:
        entries["step"] = entries["step"].to(torch.float64)
    yield
    for entries, dtype in zip(counted, dtypes, strict=True):
        entries["step"] = entries["step"].to(dtype)


def _traced_groups(optimizer: Optimizer, prefix: str, numbers: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the entries of the groups during the trace: open numbers, and traceable implementations."""
    return [
        {
            **TRACEABLE,
            **hyperparameters.replace_numbers(
                {key: value for key, value in group.items() if key not in TRACEABLE},
                hyperparameters.group_prefix(prefix, index),
                lambda name, _: numbers[name],
            ),
        }
        for index, group in enumerate(optimizer.param_groups)
    ]


def _require_same_groups(optimizer: Optimizer, groups_before: Sequence[Mapping[str, Any]]) -> None:
    for index, (group, before) in enumerate(zip(optimizer.param_groups, groups_before, strict=True)):
        for key, value in group.items():
            if key != "params" and value is not before.get(key):
                raise TracingError(
                    f"the step of {type(optimizer).__name__} changes {key!r} of its group {index}: "
                    "a graph would not",
                    fix="keep what a step changes in optimizer.state, as a tensor; "
                    "change hyperparameters between steps",
                )


def _require_same_attributes(optimizer: Optimizer, before: Mapping[str, Any]) -> None:
    for key, value in vars(optimizer).items():
        if key in before and value is not before[key]:
            raise TracingError(
                f"the step of {type(optimizer).__name__} changes its attribute {key!r}: a graph would not",
                fix="keep what a step changes in optimizer.state, as a tensor",
            )


def _write_replaced_state(optimizer: Optimizer, parameters: Sequence[torch.Tensor], state: State) -> None:
    """Turn ``state[key] = new`` into a write into the old tensor: the graph updates state in place."""
    pairs = []
    for item, entries in zip(parameters, state, strict=True):
        now = optimizer.state.get(item, {})
        for key, old in entries.items():
            new = now.get(key)
            if new is old:
                continue
            if not isinstance(new, torch.Tensor) or new.shape != old.shape or new.dtype != old.dtype:
                raise TracingError(
                    f"the step of {type(optimizer).__name__} replaces {key!r} of its state "
                    "by a value of another type",
                    fix="keep it a tensor of the same shape and dtype",
                )
            pairs.append((old, new.detach().clone()))  # all clones before any write: entries may be exchanged
            now[key] = old
    for old, new in pairs:
        old.copy_(new)


def _require_same_state(optimizer: Optimizer, known_keys: Mapping[torch.Tensor, set[str]]) -> None:
    for item, entries in optimizer.state.items():
        new = {key for key, value in entries.items() if value is not None} - known_keys.get(item, set())
        if new:
            raise UnknownStateError(
                f"only a first step tells what state {type(optimizer).__name__} keeps: "
                f"this one adds {', '.join(sorted(new))}",
                fix="take one step without the graph before: loss.backward(); optimizer.step()",
            )
