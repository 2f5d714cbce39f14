"""The state of a training, in PyTorch's own formats: saved, loaded, copied into other modules."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, TypeVar

import torch
from torch.nn import Module
from torch.nn.parameter import is_lazy
from torch.optim import Optimizer

from npu_runtime.errors import TracingError
from npu_runtime.training.checks.state_tensors import require_data, require_memory
from npu_runtime.training.loaded_state import load_module, load_optimizer, undone_if_it_fails
from npu_runtime.training.tracing.components import TrainingComponents

T = TypeVar("T")


def save_state(components: TrainingComponents) -> dict[str, Any]:
    """Return what `TrainStep.state_dict` does."""
    return {
        "model": _unwrap_single({name: item.state_dict() for name, item in components.modules.items()}),
        "optimizer": _unwrap_single(
            {name: item.state_dict() for name, item in components.optimizers.items()}
        ),
    }


def load_state(components: TrainingComponents, state: Mapping[str, Any]) -> None:
    """Load what `save_state` returned, or nothing.

    Raises:
        TracingError: Its keys are not ``"model"`` and ``"optimizer"``; a tensor in it, or one of the model,
            has no data; or it is of another model, or of another optimizer. Nothing is loaded then.
    """
    if not isinstance(state, Mapping) or set(state) != {"model", "optimizer"}:
        raise TracingError(
            f"the state of a step has the keys 'model' and 'optimizer', not {_describe_keys(state)}",
            fix="give what state_dict() returned",
        )
    require_data(state, "the state")
    for module in components.modules.values():
        require_memory(module.state_dict(), "the model")
    models = _split_by_owner(components.modules, state["model"], "model")
    optimizers = _split_by_owner(components.optimizers, state["optimizer"], "optimizer")
    with undone_if_it_fails(components):
        for owner, optimizer, loaded in optimizers:
            load_optimizer(optimizer, loaded, owner)
        for owner, module, loaded in models:
            load_module(module, loaded, owner)


def _split_by_owner(items: Mapping[str, T], loaded: Any, kind: str) -> list[tuple[str, T, Any]]:
    """Return each module or optimizer with how messages call it, and its part of the state."""
    if len(items) == 1:
        return [(f"the {kind}", item, loaded) for item in items.values()]
    names = [name.removesuffix(".") for name in items]
    if not isinstance(loaded, Mapping) or set(loaded) != set(names):
        raise TracingError(
            f"the state of several of a kind, {kind!r}, has the keys {sorted(names)},"
            f" not {_describe_keys(loaded)}",
            fix="give what state_dict() returned",
        )
    return [
        (f"the {kind} {name!r}", item, loaded[name]) for name, item in zip(names, items.values(), strict=True)
    ]


def copy_state(components: TrainingComponents, model: Module, optimizer: Optimizer | None) -> None:
    """Copy the state into another model, and another optimizer of its parameters.

    Raises:
        TracingError: There are several modules, or not exactly one optimizer; or what is to take the state
            has other parameters, or tensors that cannot be written to. Nothing is copied then.
    """
    if len(components.optimizers) != 1 or "" not in components.modules:
        raise TracingError(
            "a step of several modules or optimizers is not copied to a single one",
            fix="copy each by itself: state_dict(), load_state_dict()",
        )
    own, trained = components.modules[""], components.optimizers[""]
    given = own.state_dict()
    _require_same_tensors(given, model)
    require_data(given, "the trained model")
    require_data(trained.state_dict(), "the trained optimizer")
    if model is not own:
        require_memory(model.state_dict(), "the model")
    if optimizer is not None:
        _require_same_groups(trained, optimizer)
        _require_same_order(own, trained, model, optimizer)
    if model is not own:
        model.load_state_dict(given)
    if optimizer is not None and optimizer is not trained:
        optimizer.load_state_dict(copy.deepcopy(trained.state_dict()))


def _describe_keys(state: Any) -> str:
    return str(sorted(map(str, state))) if isinstance(state, Mapping) else f"a {type(state).__name__}"


def _require_same_tensors(given: Mapping[str, Any], model: Module) -> None:
    if not isinstance(model, Module):
        raise TracingError(
            f"expected a torch.nn.Module, got {type(model).__name__}", fix="give the model to copy into"
        )
    taken = model.state_dict()
    for name in [*given, *taken]:
        if name in given and name in taken and is_lazy(taken[name]):
            continue  # takes the shape of what is loaded
        shapes = [
            list(getattr(state[name], "shape", ())) if name in state else None for state in (given, taken)
        ]
        if shapes[0] != shapes[1]:
            trained, other = ("not there" if shape is None else f"of shape {shape}" for shape in shapes)
            raise TracingError(
                f"this is another model: {name} is {trained} in the trained one, and {other} here",
                fix="make the model as the trained one was made",
            )
        if isinstance(given[name], torch.Tensor) and not torch.can_cast(given[name].dtype, taken[name].dtype):
            raise TracingError(
                f"{name} is {given[name].dtype} in the trained model, and {taken[name].dtype} here, which"
                " cannot hold its values",
                fix="make the model as the trained one was made; floating-point dtypes may differ",
            )


def _require_same_groups(trained: Optimizer, optimizer: Optimizer) -> None:
    if not isinstance(optimizer, type(trained)):
        raise TracingError(
            f"expected an optimizer {type(trained).__name__}, got {type(optimizer).__name__}",
            fix="make the optimizer as the trained one was made",
        )
    expected, sizes = ([len(group["params"]) for group in item.param_groups] for item in (trained, optimizer))
    if sizes != expected:
        raise TracingError(
            f"the optimizer has groups of {sizes} parameters, the trained one of {expected}",
            fix="make the optimizer as the trained one was made",
        )


def _require_same_order(own: Module, trained: Optimizer, model: Module, optimizer: Optimizer) -> None:
    """Raise unless the parameters of both optimizers have the same names: their state is copied by place."""
    orders = []
    for module, item in ((own, trained), (model, optimizer)):
        names = {parameter: name for name, parameter in module.named_parameters()}
        orders.append([names.get(parameter) for group in item.param_groups for parameter in group["params"]])
    for place, (name, other) in enumerate(zip(*orders, strict=True)):
        if name != other:
            raise TracingError(
                f"parameter {place} of the optimizer is {other} of the model, of the trained one {name}",
                fix="make the optimizer as the trained one was made, of the parameters of this model",
            )


def _unwrap_single(items: dict[str, Any]) -> Any:
    if len(items) == 1:
        return next(iter(items.values()))
    return {name.removesuffix("."): item for name, item in items.items()}
