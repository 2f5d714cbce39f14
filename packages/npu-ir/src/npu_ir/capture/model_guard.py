"""Keeping a model as it is while torch.export runs its ``forward``."""

from __future__ import annotations

import contextlib
from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterator
from typing import Any

import torch
from torch.nn.modules.module import register_module_buffer_registration_hook

from npu_ir.capture.held_tensors import held_objects, namespace
from npu_ir.capture.replaced_buffers import Assignments
from npu_ir.errors import ConversionError

_CONTAINERS = (list, dict, set, OrderedDict, defaultdict)
_OWNERS = ("_parameters", "_buffers", "_non_persistent_buffers_set", "_modules")


@contextlib.contextmanager
def unchanged(model: torch.nn.Module) -> Iterator[None]:
    """Put back what the model consists of, and refuse a ``forward`` that adds to it or takes from it.

    torch.export 2.13 leaves FakeTensors in the model then, and gives the program wrong updates.

    Raises:
        ConversionError: ``forward`` registers, replaces or removes a parameter, buffer or module.
    """
    hook = register_module_buffer_registration_hook(Assignments(model))  # type: ignore[arg-type]
    try:
        with restored(model):
            yield
    finally:
        hook.remove()


@contextlib.contextmanager
def restored(model: torch.nn.Module) -> Iterator[None]:
    """Put back what the model consists of and what its modules hold, and refuse what `unchanged` refuses.

    Raises:
        ConversionError: ``forward`` registers, replaces or removes a parameter, buffer or module.
    """
    before = [
        (path, _registered(module), _containers(vars(module), {})) for path, module in model.named_modules()
    ]
    held = [_copied(_content(item)) for _, item in held_objects(model) if not isinstance(item, torch.Tensor)]
    changes: list[str] = []
    try:
        yield
    finally:
        for path, registered, attributes in before:
            changes += [f"{path}.{key}".lstrip(".") for key in _put_back(registered)]
            _put_back(attributes)
        _take_off_tensors(held)
    if changes:
        raise ConversionError(
            f"forward registers, replaces or removes {', '.join(sorted(set(changes)))}",
            where=type(model).__name__,
            fix="register it in __init__, or run the model once before it is captured",
        )


def _registered(module: torch.nn.Module) -> list[tuple[Any, Any]]:
    """Return the collections that make up ``module``, each with a copy."""
    return [_copied(getattr(module, name)) for name in _OWNERS]


def _containers(owner: Any, found: dict[int, tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """Return a list, dict or set, and those in it, each with a copy."""
    if type(owner) in _CONTAINERS and id(owner) not in found:
        found[id(owner)] = _copied(owner)
        for item in owner.values() if isinstance(owner, dict) else owner:
            _containers(item, found)
    return list(found.values())


def _copied(owner: Any) -> tuple[Any, Any]:
    return owner, owner.copy()


def _content(item: Any) -> Any:
    """Return what ``forward`` may change of something that a module holds: what is in it, or its attributes."""
    return item if isinstance(item, (list, deque, dict)) else namespace(item)


def _take_off_tensors(owners: list[tuple[Any, Any]]) -> None:
    """Make lists, dicts and attributes what their copies are, where there are other tensors now: those were only traced."""
    for owner, copy in owners:
        is_dict = isinstance(owner, dict)
        before = {id(item) for item in (copy.values() if is_dict else copy)}
        if not any(
            isinstance(item, torch.Tensor) and id(item) not in before
            for item in (owner.values() if is_dict else owner)
        ):
            continue
        owner.clear()
        owner.update(copy) if is_dict else owner.extend(copy)


def _put_back(owners: list[tuple[Any, Any]]) -> list[str]:
    """Make collections what their copies are; return the names of the entries that differed."""
    changed: list[str] = []
    for owner, copy in owners:
        if isinstance(owner, list):
            owner[:] = copy
            continue
        differs = {*owner} ^ {*copy}
        if isinstance(owner, dict):
            differs |= {key for key in owner.keys() & copy.keys() if owner[key] is not copy[key]}
        if differs:
            owner.clear()
            owner.update(copy)
        changed += differs
    return changed
