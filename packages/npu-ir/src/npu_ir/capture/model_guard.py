"""Protection of the state of a model, registered or not, while torch.export runs its ``forward``."""

from __future__ import annotations

import contextlib
from collections import OrderedDict, deque
from collections.abc import Iterator
from itertools import chain
from typing import Any

import torch
from torch.nn.modules.module import register_module_buffer_registration_hook

from npu_ir.capture.held_tensors import OF_EVERY_MODULE, held_objects, namespace, slots_of
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
    """Restore the model's registered and Python state, and refuse what `protect_model` refuses."""
    before = [
        (path, [(owner, owner.copy()) for owner in (getattr(module, name) for name in _OWNERS)])
        for path, module in model.named_modules()
    ]
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


class HeldState:
    """A snapshot of the attributes of a model and the content of the containers and objects in them.

    It holds references, not copies: a changed object is detected by identity, and restored in place.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        self._contents: list[tuple[Any, list[Any]]] = []
        self._slots: list[tuple[Any, dict[str, Any]]] = []
        for module in model.modules():
            for owner in (
                vars(module),
                *(vars(module)[name] for name in OF_EVERY_MODULE & vars(module).keys()),
            ):
                self._save(owner)
        for _, item in held_objects(model):
            self._save(item)

    def _save(self, item: Any) -> None:
        if isinstance(item, (torch.Tensor, tuple, frozenset)):
            return
        owner = item if isinstance(item, (list, deque, dict, set)) else namespace(item)
        if owner is not None:
            self._contents.append((owner, _content(owner)))
        slots = slots_of(item)
        if slots:
            self._slots.append((item, slots))

    def restore(self) -> None:
        """Restore the content of everything that has changed."""
        # Compared by identity: == of tensors is elementwise, and of other objects may run code of the model.
        for owner, content in self._contents:
            current = _content(owner)
            if len(current) != len(content) or any(map(_is_different, current, content)):
                _set_content(owner, content)
        for item, slots in self._slots:
            current_slots = slots_of(item)
            for name in current_slots.keys() - slots.keys():
                object.__delattr__(item, name)
            for name, value in slots.items():
                if name not in current_slots or current_slots[name] is not value:
                    object.__setattr__(item, name, value)


def _content(owner: Any) -> list[Any]:
    """Return the items of a container; for a dict, keys and values alternate."""
    return list(chain.from_iterable(owner.items())) if isinstance(owner, dict) else list(owner)


def _is_different(new: Any, old: Any) -> bool:
    return new is not old


def _set_content(owner: Any, content: list[Any]) -> None:
    """Set the content of a container, past methods that a subclass overrides."""
    if isinstance(owner, dict):
        _set_dict_content(owner, dict(zip(content[::2], content[1::2], strict=True)))
    elif isinstance(owner, list):
        list.__setitem__(owner, slice(None), content)
    else:
        base: Any = deque if isinstance(owner, deque) else set
        base.clear(owner)
        (base.update if base is set else base.extend)(owner, content)


def _set_dict_content(owner: dict[Any, Any], content: dict[Any, Any]) -> None:
    """Edit only the entries that differ: other threads may be reading the attributes of a model."""
    # An OrderedDict keeps its order beside the dict: dict.__setitem__ would leave it inconsistent.
    kind: Any = OrderedDict if isinstance(owner, OrderedDict) else dict
    for key in [key for key in owner if key not in content]:
        kind.__delitem__(owner, key)
    is_out_of_order = any(map(_is_different, owner, content))
    if is_out_of_order:
        kind.clear(owner)
    for key, value in content.items():
        if key not in owner or kind.__getitem__(owner, key) is not value:
            kind.__setitem__(owner, key, value)
