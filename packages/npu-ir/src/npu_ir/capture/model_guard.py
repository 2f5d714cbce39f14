"""Protection of a model's registered state while torch.export runs its ``forward``."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch.nn.modules.module import register_module_buffer_registration_hook

from npu_ir.capture.held_state import HeldState
from npu_ir.capture.replaced_buffers import AssignmentHook
from npu_ir.errors import ConversionError

_OWNERS = ("_parameters", "_buffers", "_non_persistent_buffers_set", "_modules")


@contextlib.contextmanager
def protect_model(model: torch.nn.Module) -> Iterator[None]:
    """Restore the model's registered state afterwards, and refuse a ``forward`` that changes it.

    torch.export 2.13 would leave FakeTensors in such a model, and its program would have wrong updates.
    Assignments of buffers are made visible to torch.export (`AssignmentHook`).

    Raises:
        ConversionError: ``forward`` registers, replaces or removes a parameter, buffer or module.
    """
    hook = register_module_buffer_registration_hook(AssignmentHook(model))  # type: ignore[arg-type]
    try:
        with restore_model(model):
            yield
    finally:
        hook.remove()


@contextlib.contextmanager
def restore_model(model: torch.nn.Module) -> Iterator[None]:
    """Restore the model's registered and Python state, and refuse what `protect_model` refuses.

    Raises:
        ConversionError: ``forward`` registers, replaces or removes a parameter, buffer or module.
    """
    before = [(path, _copy_collections(module)) for path, module in model.named_modules()]
    held = HeldState(model)
    changes: list[str] = []
    try:
        yield
    finally:
        for path, registered in before:
            changes += [f"{path}.{key}".lstrip(".") for key in _restore_collections(registered)]
        held.restore()
    if changes:
        raise ConversionError(
            f"forward registers, replaces or removes {', '.join(sorted(set(changes)))}",
            where=type(model).__name__,
            fix="register it in __init__, or run the model once before it is captured",
        )


def _copy_collections(module: torch.nn.Module) -> list[tuple[Any, Any]]:
    """Return the collections of parameters, buffers and submodules of ``module``, each with a copy."""
    return [(owner, owner.copy()) for owner in (getattr(module, name) for name in _OWNERS)]


def _restore_collections(owners: list[tuple[Any, Any]]) -> list[str]:
    """Restore collections from their copies; return the names of the entries that differed."""
    changed: list[str] = []
    for owner, copy in owners:
        differs = {*owner} ^ {*copy}
        if isinstance(owner, dict):
            differs |= {key for key in owner.keys() & copy.keys() if owner[key] is not copy[key]}
        if differs:
            owner.clear()
            owner.update(copy)
        changed += differs
    return changed
