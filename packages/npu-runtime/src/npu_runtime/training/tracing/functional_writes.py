"""Functional ops in place of the writes of a traced step, by one walk over its FX graph.

PyTorch's functionalization traces the step again, which takes as long as the first trace. Most steps write
whole tensors only: parameters, state, statistics. Their graph is rewritten here into the one that
functionalization makes: each storage has a current content, and views of an older content are made again
before they are read. What writes into a part of a tensor, or has no functional op that returns the same
types, is left to PyTorch.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from npu_ir.capture.writes import has_hidden_write, written_nodes
from npu_ir.ops.schema import schema_of
from npu_runtime._torch.ops import OpOverload
from npu_runtime._torch.tracing_context import name_of_call, remove_constant_copies
from npu_runtime.training.tracing.functional_ops import functional_op, returns_same_types, with_defaults

_COPY = torch.ops.aten.copy_.default
_DETACH = torch.ops.aten.detach.default
_BATCH_NORM = torch.ops.aten._native_batch_norm_legit.default
_FUNCTIONAL_BATCH_NORM = torch.ops.aten._native_batch_norm_legit_functional.default


# Of a tensor, not of its memory; layers of PyTorch transpose their results so.
_VIEWS_IN_PLACE = {torch.ops.aten.transpose_.default: torch.ops.aten.transpose.int}


class _UnknownWriteError(Exception):
    """A node writes, or may share memory, in a way that is left to PyTorch's functionalization."""


def replace_writes(module: GraphModule) -> bool:
    """Make a traced module functional, except for copies into its arguments at its end, if that is simple.

    Returns:
        False, and the module is unchanged, if PyTorch's functionalization has to do it.
    """
    try:
        graph = _Rewriter(module.graph).run()
    except _UnknownWriteError:
        return False
    module.graph = graph
    remove_constant_copies(module)
    return True


@dataclass(eq=False, slots=True)
class _Storage:
    """The memory of a tensor and of all views of it: its current content, and the number of its writes."""

    content: Node
    version: int = 0


@dataclass(eq=False, slots=True)
class _Tensor:
    """A tensor of the trace: its node in the new graph, right for one version of its storage.

    Attributes:
        views: The nodes that make it of the content of the storage; None if they cannot be repeated.
    """

    storage: _Storage
    node: Node
    version: int
    views: tuple[Node, ...] | None = ()


class _Rewriter:
    """The new graph, and the tensor of each node of the old one."""

    def __init__(self, old: Graph) -> None:
        self._old = old
        self._new = Graph()
        self._tensors: dict[Node, _Tensor] = {}
        self._viewed: dict[Node, _Tensor] = {}  # by nodes that return several views of a tensor

    def run(self) -> Graph:
        for node in self._old.nodes:
            if node.op in ("placeholder", "get_attr"):
                self._define(node, self._new.node_copy(node))
            elif node.op == "output":
                results = self._current(node.args[0])
                self._copy_into_placeholders()
                self._new.output(results)
            elif node.op == "call_function":
                self._rewrite_call(node)
            else:
                raise _UnknownWriteError
        return self._new

    def _rewrite_call(self, node: Node) -> None:
        op = node.target
        if node in self._tensors:
            return  # a part of a batch norm
        if any("val" not in item.meta for item in node.all_input_nodes):
            raise _UnknownWriteError  # inserted after the trace
        if not isinstance(op, OpOverload):
            self._rewrite_function(node)
        elif op in _VIEWS_IN_PLACE:
            self._replace_view_in_place(node, _VIEWS_IN_PLACE[op])
        elif schema_of(op).writes:
            self._replace_write(node, op)
        elif has_hidden_write(node):
            raise _UnknownWriteError
        elif any(item.alias_info is not None for item in op._schema.returns):
            self._rewrite_view(node, op)
        else:
            self._define(node, self._insert(node, op, *self._current((node.args, node.kwargs))))

    def _rewrite_function(self, node: Node) -> None:
        """Copy a call of a function of numbers, or the choice of one of several results."""
        sources = node.all_input_nodes
        is_part = node.target is operator.getitem
        if not is_part and any(isinstance(item.meta["val"], torch.Tensor) for item in sources):
            raise _UnknownWriteError
        new = self._insert(node, node.target, *self._current((node.args, node.kwargs)))
        viewed = self._viewed.get(sources[0]) if is_part else None
        if viewed is None:
            self._define(node, new)
        else:
            self._tensors[node] = _Tensor(viewed.storage, new, viewed.version, views=None)

    def _rewrite_view(self, node: Node, op: OpOverload) -> None:
        place = _viewed_argument(op)
        source = node.args[place] if place is not None and place < len(node.args) else None
        if not isinstance(source, Node) or "val" not in node.meta:
            raise _UnknownWriteError
        new = self._insert(node, op, *self._current((node.args, node.kwargs)))
        viewed = self._tensors[source]
        if not isinstance(node.meta["val"], torch.Tensor):
            self._viewed[node] = _Tensor(viewed.storage, new, viewed.version)
            self._define(node, new)
            return
        is_repeatable = viewed.views is not None and node.all_input_nodes == [source]
        views = (*viewed.views, node) if is_repeatable and viewed.views is not None else None
        self._tensors[node] = _Tensor(viewed.storage, new, viewed.version, views)

    # Writes

    def _replace_view_in_place(self, node: Node, view: OpOverload) -> None:
        """Make a view of a tensor that becomes one itself: later nodes of the trace read ``node``."""
        viewed = self._tensors[node.all_input_nodes[0]]
        if viewed.storage.content.op == "placeholder":
            raise _UnknownWriteError
        new = self._insert(node, view, *self._current((node.args, node.kwargs)))
        self._tensors[node] = _Tensor(viewed.storage, new, viewed.version, views=None)

    def _replace_write(self, node: Node, op: OpOverload) -> None:
        if op is _BATCH_NORM:
            self._replace_batch_norm(node)
            return
        functional = functional_op(op)
        targets = written_nodes(node)
        if functional is None or not targets:
            raise _UnknownWriteError
        args = with_defaults(node, op, functional)
        if not returns_same_types(functional, args, node, targets):
            raise _UnknownWriteError
        values = [item.meta["val"] for item in targets]
        is_list = bool(functional._schema.returns) and str(functional._schema.returns[0].type) != "Tensor"
        args, kwargs = self._current((args, node.kwargs))
        new = self._insert(node, functional, args, kwargs, values if is_list else values[0])
        contents = [self._part(new, index) for index in range(len(values))] if is_list else [new]
        self._write(targets, contents)
        self._tensors[node] = self._tensors[targets[0]]

    def _replace_batch_norm(self, node: Node) -> None:
        """Have a batch norm return its new running statistics, after its three results."""
        targets = written_nodes(node)
        if len(targets) != 2:
            raise _UnknownWriteError
        value = (*node.meta["val"], *(item.meta["val"] for item in targets))
        args, kwargs = self._current((node.args, node.kwargs))
        new = self._insert(node, _FUNCTIONAL_BATCH_NORM, args, kwargs, value)
        parts = [self._part(new, index) for index in range(len(value))]
        for user in node.users:
            self._define(user, parts[user.args[1]])  # type: ignore[index]
        self._write(targets, parts[3:])

    def _write(self, targets: Sequence[Node], contents: Sequence[Node]) -> None:
        """Make nodes the contents of the tensors that a node writes."""
        tensors = [self._tensors[item] for item in targets]
        if len({item.storage for item in tensors}) < len(tensors):
            raise _UnknownWriteError
        for tensor, content in zip(tensors, contents, strict=True):
            if tensor.views is None or any(view.target is not _DETACH for view in tensor.views):
                raise _UnknownWriteError  # a part of the storage, or in another order
            tensor.storage.content = content
            tensor.storage.version += 1
        for tensor in tensors:
            self._update(tensor)

    def _copy_into_placeholders(self) -> None:
        for old, new in zip(
            self._old.find_nodes(op="placeholder"), self._new.find_nodes(op="placeholder"), strict=True
        ):
            content = self._tensors[old].storage.content
            if content is not new:
                self._insert(old, _COPY, (new, content), {})

    # Nodes of the new graph

    def _define(self, node: Node, new: Node) -> None:
        self._tensors[node] = _Tensor(_Storage(new), new, 0)

    def _insert(self, node: Node, target: Any, args: Any, kwargs: Any, value: Any = None) -> Node:
        """Insert a call with the metadata of an old node; it has the name that a trace gives it."""
        if kwargs and isinstance(target, OpOverload):  # a trace has no keyword argument that is the default
            defaults = {
                item.name: item.default_value for item in target._schema.arguments if item.has_default_value()
            }
            kwargs = {key: item for key, item in kwargs.items() if defaults.get(key, kwargs) is not item}
        new = self._new.create_node("call_function", target, args, kwargs, name_of_call(self._new, target))
        new.meta = dict(node.meta)
        if value is not None:
            new.meta["val"] = value
        return new

    def _part(self, node: Node, index: int) -> Node:
        return self._insert(node, operator.getitem, (node, index), {}, node.meta["val"][index])

    def _current(self, arguments: Any) -> Any:
        """Return arguments of the old graph as those of the new one, of the current content."""
        return torch.fx.map_arg(arguments, lambda node: self._update(self._tensors[node]))

    def _update(self, tensor: _Tensor) -> Node:
        """Return the node of a tensor, made again if its storage was written since."""
        storage = tensor.storage
        if tensor.version != storage.version:
            if tensor.views is None:
                raise _UnknownWriteError
            node = storage.content
            for view in tensor.views:
                source = view.all_input_nodes[0]
                args, kwargs = torch.fx.map_arg((view.args, view.kwargs), {source: node}.__getitem__)
                node = self._insert(view, view.target, args, kwargs)
            tensor.node, tensor.version = node, storage.version
        return tensor.node


@functools.cache
def _viewed_argument(op: OpOverload) -> int | None:
    """Return the index of the only argument that the results of an op are views of."""
    places = [index for index, item in enumerate(op._schema.arguments) if item.alias_info is not None]
    return places[0] if len(places) == 1 else None
