"""Alias sets of an exported program: the nodes that share memory."""

from __future__ import annotations

import torch
from torch.fx import Graph as FxGraph
from torch.fx import GraphModule, Node

from npu_ir._torch.sizes import are_sizes_equal
from npu_ir._torch.tensors import is_wrapper, wrapped_parts
from npu_ir.capture.fx_nodes import bodies
from npu_ir.capture.writes import same_shape_and_dtype, tensor_of
from npu_ir.core.storage import storage_id

LIFT = torch.ops.aten.lift_fresh_copy.default


class AliasSets:
    """The alias sets of a program, read off the storages of the FakeTensors in its metadata.

    A body that shares memory with the graph around it (a region without gradients) has the same FakeTensors
    as that graph; torch.export refuses control flow whose bodies return or mutate their operands.
    """

    def __init__(self, module: GraphModule) -> None:
        # The execution order: nodes of a body come before the node that runs it.
        self.position: dict[Node, int] = {}
        # For each placeholder that is the same tensor as an earlier one: the name of the earlier one.
        self.ties: dict[str, str] = {}
        self._program = module.graph
        self._members: dict[int, list[Node]] = {}
        self._outside: set[tuple[FxGraph, int]] = set()
        self._same: dict[int, int] = {}
        self._add(module)

    def _add(self, module: GraphModule) -> None:
        for node in module.graph.nodes:
            if node in self.position:
                return  # a body that two nodes run
            for body in bodies(node, module):
                self._add(body)
            self.position[node] = len(self.position)
            self._add_node(node)

    def _add_node(self, node: Node) -> None:
        tensor, source = tensor_of(node), idle_dropout_input(node)
        if tensor is None:
            return
        if source is not None:  # unite the two sets; the set of `source` is final, as nodes come in order
            self._same[storage_id(tensor)] = self.storage_id(source)
        if _is_copied_literal(node):
            return
        storage = self.storage_id(tensor)
        members = self._members.setdefault(storage, [])
        if node.op == "placeholder" and node.graph is self._program:
            self._record_tie(node, tensor, members)
        if node.op in {"placeholder", "get_attr"}:
            self._outside.add((node.graph, storage))
        members.append(node)

    def _record_tie(self, node: Node, tensor: torch.Tensor, earlier: list[Node]) -> None:
        for other in earlier:
            if is_same_view(tensor, other.meta["val"]):
                self.ties[node.name] = self.ties.get(other.name, other.name)
                return

    def storage_id(self, tensor: torch.Tensor) -> int:
        """Return the id of the alias set of ``tensor``."""
        storage = storage_id(tensor)
        return self._same.get(storage, storage)

    def of(self, node: Node) -> list[Node]:
        """Return every node that shares memory with ``node``, itself included, in any graph."""
        tensor = tensor_of(node)
        return [node] if tensor is None else self._members[self.storage_id(tensor)]

    def placeholders_of(self, node: Node, graph: FxGraph | None = None) -> list[Node]:
        """Return the placeholders of ``graph``, by default its own, that share memory with ``node``."""
        graph = graph or node.graph
        return [other for other in self.of(node) if other.op == "placeholder" and other.graph is graph]

    def is_from_outside(self, node: Node) -> bool:
        """Return whether ``node`` shares memory with something from outside its graph."""
        tensor = tensor_of(node)
        return tensor is None or (node.graph, self.storage_id(tensor)) in self._outside


_DROPOUTS = frozenset(
    getattr(torch.ops.aten, name).default
    for name in ("dropout", "feature_dropout", "alpha_dropout", "feature_alpha_dropout")
)


def idle_dropout_input(node: Node) -> torch.Tensor | None:
    """Return the input of a dropout that drops nothing; None for other nodes.

    Eager mode returns this input itself, while the FakeTensor of the result is a copy (torch 2.13).
    """
    if node.target not in _DROPOUTS or len(node.args) != 3 or not isinstance(node.args[0], Node):
        return None
    _, probability, is_training = node.args
    return tensor_of(node.args[0]) if probability == 0 or is_training is False else None


def is_same_view(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Return whether two tensors on the same memory are provably the same elements in the same order."""
    if is_wrapper(left) or is_wrapper(right):
        return type(left) is type(right) and _has_same_parts(left, right)
    return (
        same_shape_and_dtype(left, right)
        and are_sizes_equal(left.stride(), right.stride())
        and are_sizes_equal([left.storage_offset()], [right.storage_offset()])
    )


def _has_same_parts(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Return whether two tensors of one wrapper subclass consist of the same tensors."""
    pairs = zip(wrapped_parts(left).items(), wrapped_parts(right).items(), strict=False)
    return all(
        name == other_name and storage_id(part) == storage_id(other) and is_same_view(part, other)
        for (name, part), (other_name, other) in pairs
    )


def _is_copied_literal(node: Node) -> bool:
    """Return whether ``node`` is a tensor literal of ``forward``, of which the program reads only copies.

    The FakeTensors of the literal and of its copy share memory, which the tensors do not (torch 2.13).
    """
    is_argument = node.op in {"placeholder", "get_attr"}
    return is_argument and bool(node.users) and all(user.target is LIFT for user in node.users)
