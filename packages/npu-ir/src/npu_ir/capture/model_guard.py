"""Keeping a model as it is while torch.export runs its ``forward``."""

from __future__ import annotations

import contextlib
from collections import OrderedDict, defaultdict
from collections.abc import Iterator
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.nn.modules.module import register_module_buffer_registration_hook

from npu_ir import _torch
from npu_ir.capture.provenance import place
from npu_ir.errors import ConversionError
from npu_ir.types import dtype_name

# How torch.export 2.13 names the copy that it appends for ``self.buffer = new``.
_ASSIGNMENT = "copy__default"
_FINAL_SIZE = "give the buffer its final size and dtype from the start, and write into parts of it"
_CONTAINERS = (list, dict, set, OrderedDict, defaultdict)
_OWNERS = ("_parameters", "_buffers", "_non_persistent_buffers_set", "_modules")


@contextlib.contextmanager
def unchanged(model: torch.nn.Module) -> Iterator[None]:
    """Put back what the model consists of, and refuse a ``forward`` that adds to it or takes from it.

    torch.export 2.13 leaves FakeTensors in the model then, and gives the program wrong updates.

    Raises:
        ConversionError: ``forward`` registers, replaces or removes a parameter, buffer or module.
    """
    hook = register_module_buffer_registration_hook(_Assignments(model))  # type: ignore[arg-type]
    try:
        with restored(model):
            yield
    finally:
        hook.remove()


@contextlib.contextmanager
def restored(model: torch.nn.Module) -> Iterator[None]:
    """Put back what the model consists of and the attributes of its modules, and refuse what `unchanged` refuses.

    Raises:
        ConversionError: ``forward`` registers, replaces or removes a parameter, buffer or module.
    """
    before = [
        (path, _registered(module), _containers(vars(module), {})) for path, module in model.named_modules()
    ]
    changes: list[str] = []
    try:
        yield
    finally:
        for path, registered, attributes in before:
            changes += [f"{path}.{key}".lstrip(".") for key in _put_back(registered)]
            _put_back(attributes)
    if changes:
        raise ConversionError(
            f"forward registers, replaces or removes {', '.join(sorted(set(changes)))}",
            where=type(model).__name__,
            fix="register it in __init__, or run the model once before it is captured",
        )


class _Assignments:
    """Makes ``self.buffer = new`` in a submodule a write into the buffer.

    torch.export sees such an assignment only in the root module; in others it loses it (torch 2.13).
    """

    def __init__(self, model: torch.nn.Module) -> None:
        self._paths = {id(module): path for path, module in model.named_modules() if module is not model}

    def __call__(self, module: torch.nn.Module, name: str, new: torch.Tensor | None) -> torch.Tensor | None:
        old = module._buffers.get(name)
        if id(module) not in self._paths or old is None or new is None or new is old:
            return None
        if old.dtype != new.dtype or not _torch.same_sizes(old.shape, new.shape):
            path = f"{self._paths[id(module)]}.{name}"
            raise ConversionError(
                f"{path} is {_text(old)}, and forward replaces it by a tensor that is {_text(new)}",
                where=type(module).__name__,
                fix=_FINAL_SIZE,
            )
        old.copy_(new)
        return old


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


def require_same_types(program: ExportedProgram) -> None:
    """Refuse a buffer that ``forward`` replaces by a tensor of another shape or dtype.

    torch.export would broadcast and cast the new tensor to the old one's type.
    """
    for node in program.graph.nodes:
        if node.name.startswith(_ASSIGNMENT) and node.target is torch.ops.aten.copy_.default:
            old, new = (item.meta["val"] for item in node.all_input_nodes)
            if old.dtype != new.dtype or not _torch.same_sizes(old.shape, new.shape):
                raise ConversionError(
                    f"{node.args[0]} is {_text(old)}, and forward replaces it by a tensor that is {_text(new)}",
                    where=place(node),
                    fix=_FINAL_SIZE,
                )


def _text(tensor: torch.Tensor) -> str:
    return f"{dtype_name(tensor.dtype)}[{', '.join(map(str, tensor.shape))}]"
