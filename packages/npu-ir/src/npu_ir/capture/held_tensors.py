"""Tensors that a model holds without having registered them: in plain attributes, lists, dicts and objects."""

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
# FX graphs have FakeTensors in their metadata; loggers, threads and queues are not the model's alone.
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
    """Return every tensor that is held, registered or not, by the first path to it, such as ``cache.layers.0.keys``."""
    return {path: item for path, item in held_objects(model) if isinstance(item, torch.Tensor)}


def unregistered_tensors(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Return those that are no parameter or buffer of ``model``."""
    registered = {id(tensor) for tensor in (*model.parameters(), *model.buffers())}
    return {path: tensor for path, tensor in held_tensors(model).items() if id(tensor) not in registered}


def held_objects(model: torch.nn.Module) -> Iterator[tuple[str, Any]]:
    """Yield the path of each tensor, container and object that the modules of ``model`` hold, and the thing itself, once."""
    modules = dict(model.named_modules())
    seen = {id(module): module for module in modules.values()}  # kept, so that no other object gets its id
    for root, module in modules.items():
        waiting = [(f"{root}.{key}".lstrip("."), item) for key, item in _attributes(module)][::-1]
        while waiting:
            path, item = waiting.pop()
            if id(item) in seen or item is None or isinstance(item, _ATOMS):
                continue
            seen[id(item)] = item
            yield path, item
            waiting += [(f"{path}.{key}", part) for key, part in _parts(item)][::-1]


def _attributes(module: torch.nn.Module) -> Iterator[tuple[str, Any]]:
    return ((key, item) for key, item in vars(module).items() if key not in OF_EVERY_MODULE)


def _parts(item: Any) -> Iterator[tuple[Any, Any]]:
    """Yield what a container or an object consists of, by key."""
    if isinstance(item, torch.Tensor):
        return
    if isinstance(item, (list, tuple, deque, set, frozenset)):
        yield from enumerate(list(item))
    elif isinstance(item, dict):
        yield from list(item.items())
    elif isinstance(item, torch.nn.Module):  # in a list that is no ModuleList
        for owner in (item._parameters, item._buffers, item._modules):
            yield from owner.items()
        yield from _attributes(item)
    else:
        if isinstance(item, functools.partial):
            yield from (("func", item.func), ("args", item.args), ("keywords", item.keywords))
        yield from list((namespace(item) or {}).items())
        yield from slots_of(item).items()


def namespace(item: Any) -> dict[str, Any] | None:
    """Return the attributes of an object; not what it may pretend to have, as proxies do."""
    try:
        found = object.__getattribute__(item, "__dict__")
    except AttributeError:
        return None
    return found if isinstance(found, dict) else None


def slots_of(item: Any) -> dict[str, Any]:
    """Return the attributes of an object that are in the ``__slots__`` of its classes."""
    names = _slot_names(type(item))  # type: ignore[arg-type]
    return {name: getattr(item, name) for name in names if hasattr(item, name)}


@functools.lru_cache(maxsize=1024)
def _slot_names(kind: type) -> tuple[str, ...]:
    """Return the names of the slots of a class and those it inherits from, as attributes are called."""
    found = []
    for owner in kind.__mro__:
        names = vars(owner).get("__slots__", ())
        for name in (names,) if isinstance(names, str) else names:
            is_private = name.startswith("__") and not name.endswith("__")
            found.append(f"_{owner.__name__.lstrip('_')}{name}" if is_private else name)
    return tuple(name for name in found if name not in ("__dict__", "__weakref__"))
