"""Tensors that a model holds unregistered: their paths, and their part in an exported program."""

from __future__ import annotations

import contextlib
import functools
import itertools
import logging
import queue
import threading
import types
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.fx import Graph, Node

from npu_ir._torch.ops import OpOverload
from npu_ir._torch.sizes import are_sizes_equal
from npu_ir.capture.aliases import LIFT, is_same_view
from npu_ir.capture.retrace import all_written_nodes
from npu_ir.capture.writes import tensor_of
from npu_ir.core.storage import storage_id
from npu_ir.ops.schema import schema_of

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
            waiting += [(f"{path}.{key}", part) for key, part in children_of(item)][::-1]


def _attributes(module: torch.nn.Module) -> Iterator[tuple[str, Any]]:
    return ((key, item) for key, item in vars(module).items() if key not in OF_EVERY_MODULE)


def children_of(item: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the elements of a container, or the attributes of an object, by key; nothing of a tensor."""
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


@contextlib.contextmanager
def register_temporarily(
    model: torch.nn.Module, tensors: Mapping[str, torch.Tensor]
) -> Iterator[dict[str, str]]:
    """Register tensors as temporary, non-persistent buffers of ``model``; yield their paths by name."""
    paths: dict[str, str] = {}
    for path, tensor in tensors.items():
        names = (f"held_tensor_{number}" for number in itertools.count(len(paths)))
        name = next(name for name in names if not hasattr(model, name))
        paths[name] = path
        model._buffers[name] = tensor
        model._non_persistent_buffers_set.add(name)
    try:
        yield paths
    finally:
        for name in paths:
            del model._buffers[name]
            model._non_persistent_buffers_set.discard(name)


def name_held_tensors(
    program: ExportedProgram, held: Mapping[str, torch.Tensor], paths: Mapping[str, str]
) -> None:
    """Name constants and buffers of ``program`` by their paths in the model; drop unread ones.

    ``held`` are the tensors that torch.export treated as constants, by path; ``paths`` has the paths of the
    temporarily registered tensors, by name.
    """
    signature = program.graph_signature
    placeholders = program.graph.find_nodes(op="placeholder")
    returned = {output.target for output in signature.output_specs}
    for spec, node in zip(list(signature.input_specs), placeholders, strict=True):
        # torch.export makes every registered buffer an argument, read or not.
        if spec.target in paths and not node.users and spec.target not in returned:
            program.graph.erase_node(node)
            signature.input_specs.remove(spec)
            del program.constants[str(spec.target)]
            continue
        path = paths.get(str(spec.target))
        if spec.kind is InputKind.CONSTANT_TENSOR:
            tensor = program.constants[str(spec.target)]
            path = next((path for path, own in held.items() if _is_same_tensor(tensor, own)), None)
        if path is not None and path not in program.constants:
            program.constants[path] = program.constants.pop(str(spec.target))
            spec.target = path
    for output in signature.output_specs:
        if output.target is not None:
            output.target = paths.get(output.target, output.target)


def find_written_constants(program: ExportedProgram) -> set[str]:
    """Return the names of constants of ``program`` that it may mutate.

    A result that may share memory with an operand counts as that operand. The FakeTensors do not show
    this for constants: that of ``constant.to(device)`` has memory of its own (torch 2.13).
    """
    placeholders = program.graph.find_nodes(op="placeholder")
    constants = {
        node: str(spec.target)
        for spec, node in zip(program.graph_signature.input_specs, placeholders, strict=True)
        if spec.kind is InputKind.CONSTANT_TENSOR
    }
    # A worklist from the written nodes back to the constants whose memory they may be.
    waiting = list(all_written_nodes(program.graph_module)) if constants else []
    reached: dict[Node, None] = {}
    while waiting:
        node = waiting.pop()
        if node not in reached:
            reached[node] = None
            waiting += _possible_aliases(node)
    return {name for node, name in constants.items() if node in reached}


def _possible_aliases(node: Node) -> list[Node]:
    """Return the arguments that the result of ``node`` may alias."""
    op = node.target
    if not isinstance(op, OpOverload) or op is LIFT:
        return []
    if any(item.alias_info is not None for item in op._schema.returns):
        return node.all_input_nodes
    return [
        item for item in node.all_input_nodes if schema_of(op).is_composite and _has_same_numel(node, item)
    ]


def _has_same_numel(left: Node, right: Node) -> bool:
    sizes = [tensor.numel() for node in (left, right) if (tensor := tensor_of(node)) is not None]
    return len(sizes) == 2 and are_sizes_equal(sizes[:1], sizes[1:])


def _is_same_tensor(left: object, right: torch.Tensor) -> bool:
    """Return whether two tensors are one object, or the same view of the same memory."""
    if left is right:
        return True
    both = all(isinstance(item, torch.Tensor) and item.layout is torch.strided for item in (left, right))
    return both and storage_id(left) == storage_id(right) and is_same_view(left, right)  # type: ignore[arg-type]
