"""The state of modules and optimizers is loaded whole, or not at all."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module
from torch.optim import Optimizer

from npu_runtime._torch.tensors import find_data_problem
from npu_runtime.errors import TracingError
from npu_runtime.executor.input_updates import find_write_problem
from npu_runtime.training.tracing.components import TrainingComponents
from npu_runtime.training.tracing.optimizer_state import parameters_of

# What optimizers of torch.optim keep as one number of each parameter; all else is like the parameter.
_NUMBERS = ("step", "eta", "mu", "mu_product")
_FIX = "give what state_dict() returned for a step of the same model and optimizer"


@contextlib.contextmanager
def undone_if_it_fails(components: TrainingComponents) -> Iterator[None]:
    """Put modules and optimizers back to what they are now, if the block fails.

    What fits is known to ``load_state_dict`` alone, since hooks and classes may rename and convert; and that
    of a module finds what does not fit after it has written the rest.
    """
    # An optimizer is given new objects, and the old ones are not written to.
    optimizers = [(item, item.state, item.param_groups) for item in components.optimizers.values()]
    modules = list(components.modules.values())
    tensors = [(item, _copied(item)) for module in modules for item in _writable_tensors(module)]
    extras = [(part, copy.deepcopy(part.get_extra_state())) for part in _with_extra_state(modules)]
    try:
        yield
    except BaseException:  # Ctrl-C, too
        for optimizer, state, groups in optimizers:
            optimizer.state, optimizer.param_groups = state, groups
        with torch.no_grad():
            for tensor, kept in tensors:
                tensor.copy_(kept)
        for part, extra in extras:
            part.set_extra_state(extra)
        raise


def load_module(module: Module, loaded: Any, owner: str) -> None:
    """Load the state of a module.

    Args:
        module: The module.
        loaded: What its ``state_dict()`` returned.
        owner: What a message calls it.

    Raises:
        TracingError: It names the tensors that are missing, unexpected, or of another shape.
    """
    try:
        module.load_state_dict(loaded)
    except Exception as error:
        raise _misfit(owner, error) from error


def load_optimizer(optimizer: Optimizer, loaded: Any, owner: str) -> None:
    """Load the state of an optimizer; the arguments are as for `load_module`.

    An entry without tensors, as of a step that was not taken, fits any.

    Raises:
        TracingError: It has other groups, a group lacks a setting, or a tensor is not of the shape that it
            has for its parameter.
    """
    before = [dict(optimizer.state.get(parameter, {})) for parameter in parameters_of(optimizer)]
    try:
        optimizer.load_state_dict(loaded)
    except Exception as error:
        raise _misfit(owner, error) from error
    for index, group in enumerate(optimizer.param_groups):
        missing = [key for key in optimizer.defaults if key not in group]
        if missing:
            raise TracingError(
                f"the state of {owner} does not fit: group {index} of its param_groups has no {missing[0]!r}",
                fix=_FIX,
            )
    for place, (parameter, old) in enumerate(zip(parameters_of(optimizer), before, strict=True)):
        for key, item in _entries(optimizer, parameter).items():
            shape = _shape(optimizer, parameter, old, key)
            if isinstance(item, Tensor) and shape is not None and item.shape != shape:
                raise TracingError(
                    f"the state of {owner} does not fit: the {key!r} of parameter {place} is of shape"
                    f" {list(item.shape)}, not {list(shape)}",
                    fix=_FIX,
                )


def _entries(optimizer: Optimizer, parameter: Tensor) -> Mapping[str, Any]:
    entries = optimizer.state.get(parameter, {})
    return entries if isinstance(entries, Mapping) else {}


def _shape(optimizer: Optimizer, parameter: Tensor, old: Mapping[str, Any], key: str) -> Sequence[int] | None:
    """Return the shape that an entry of the state has; None if nobody knows it."""
    if isinstance(old.get(key), Tensor):
        return tuple(old[key].shape)
    if not type(optimizer).__module__.startswith("torch.optim"):
        return None
    return () if key in _NUMBERS else tuple(parameter.shape)


def _misfit(owner: str, error: Exception) -> TracingError:
    """Return the error for what ``load_state_dict`` of PyTorch raised; its message names the tensors."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if isinstance(error, KeyError):
        reason = f"it has no {error}"
    elif lines[1:] and lines[0].startswith("Error(s) in loading state_dict"):
        reason = " ".join(lines[1:])
    else:
        reason = f"{type(error).__name__}: {' '.join(lines)}"
    return TracingError(f"the state of {owner} does not fit: {reason}", fix=_FIX)


def _writable_tensors(module: Module) -> Iterator[Tensor]:
    for tensor in [*module.parameters(), *module.buffers()]:
        if find_data_problem(tensor) is None and find_write_problem(tensor.detach()) is None:
            yield tensor


def _copied(tensor: Tensor) -> Tensor:
    # In the memory of the host: an accelerator may have no place for a second model.
    return tensor.detach().to("cpu", copy=True)


def _with_extra_state(modules: list[Module]) -> Iterator[Module]:
    for module in modules:
        for part in module.modules():
            kind = type(part)
            if kind.get_extra_state is not Module.get_extra_state:
                yield part
