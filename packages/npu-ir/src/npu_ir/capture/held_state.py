"""Snapshot of the Python state of a model: its attributes, and the lists, dicts, sets and objects in them."""

from __future__ import annotations

from collections import OrderedDict, deque
from itertools import chain
from typing import Any

import torch

from npu_ir.capture.held_tensors import OF_EVERY_MODULE, held_objects, namespace, slots_of


class HeldState:
    """A snapshot of the attributes of a model and the content of the containers and objects in them.

    It holds references, not copies: a changed object is detected by identity, and restored in place.

    Args:
        model: The model.
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
