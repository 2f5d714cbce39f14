"""Tensors that a model holds unregistered: in plain attributes, lists, dicts and objects."""

from __future__ import annotations

import functools
import logging
import queue
import threading
import types
from collections import deque
from collections.abc import Iterator
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.fx import Graph, Node

OF_EVERY_MODULE = frozenset(vars(torch.nn.Module()))
# Not searched: FX graphs have FakeTensors in their metadata; loggers, threads and queues are shared.
_ATOMS = (
    str,
    bytes,
    int,
    float,
    complex,
    type,
    types.ModuleType,
    types.FunctionType,
    Graph,
    Node,
    ExportedProgram,
    logging.Logger,
    threading.Thread,
    queue.Queue,
)


def held_tensors(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Return the tensors in attributes of the modules, by the first path to each: ``cache.layers.0.keys``.

    Some of them may be registered, too.
    """
    return {path: item for path, item in held_objects(model) if isinstance(item, torch.Tensor)}


def unregistered_tensors(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Return the held tensors that are not parameters or buffers of ``model``."""
    registered = {id(tensor) for tensor in (*model.parameters(), *model.buffers())}
    return {path: tensor for path, tensor in held_tensors(model).items() if id(tensor) not in registered}


def held_objects(model: torch.nn.Module) -> Iterator[tuple[str, Any]]:
    """Yield each tensor, container and object in attributes of the model's modules once, with its path."""
    modules = dict(model.named_modules())
    seen = {id(module): module for module in modules.values()}  # kept, so that no other object gets its id
    for root, module in modules.items():
        # Depth-first search with an explicit stack, so that no structure is too deep.
        waiting = [(f"{root}.{key}".lstrip("."), item) for key, item in _attributes(module)][::-1]
        while waiting:
            path, item = waiting.pop()
            if id(item) in seen or item is None or isinstance(item, _ATOMS):
                continue
            seen[id(item)] = item
            yield path, item
            waiting += [(f"{path}.{key}", part) for key, part in _children(item)][::-1]


def _attributes(module: torch.nn.Module) -> Iterator[tuple[str, Any]]:
    return ((key, item) for key, item in vars(module).items() if key not in OF_EVERY_MODULE)


def _children(item: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the elements of a container, or the attributes of an object, by key."""
    if isinstance(item, torch.Tensor):
        return
    if isinstance(item, (list, tuple, deque, set, frozenset)):
        yield from enumerate(list(item))
    elif isinstance(item, dict):
        yield from list(item.items())
    elif isinstance(item, torch.nn.Module):  # in a list that is not a ModuleList
        for owner in (item._parameters, item._buffers, item._modules):
            yield from owner.items()
        yield from _attributes(item)
    else:
        if isinstance(item, functools.partial):
            yield from (("func", item.func), ("args", item.args), ("keywords", item.keywords))
        yield from list((namespace(item) or {}).items())
        yield from slots_of(item).items()


def namespace(item: Any) -> dict[str, Any] | None:
    """Return the ``__dict__`` of an object itself, bypassing what a proxy forwards to."""
    try:
        attributes = object.__getattribute__(item, "__dict__")
    except AttributeError:
        return None
    return attributes if isinstance(attributes, dict) else None


def slots_of(item: Any) -> dict[str, Any]:
    """Return the attributes of an object that reside in ``__slots__`` of its classes."""
    names = _slot_names(type(item))  # type: ignore[arg-type]
    return {name: getattr(item, name) for name in names if hasattr(item, name)}


@functools.lru_cache(maxsize=1024)
def _slot_names(kind: type) -> tuple[str, ...]:
    """Return the names of the slots of a class and its bases, private ones mangled."""
    slot_names = []
    for owner in kind.__mro__:
        names = vars(owner).get("__slots__", ())
        for name in (names,) if isinstance(names, str) else names:
            is_private = name.startswith("__") and not name.endswith("__")
            slot_names.append(f"_{owner.__name__.lstrip('_')}{name}" if is_private else name)
    return tuple(name for name in slot_names if name not in ("__dict__", "__weakref__"))
