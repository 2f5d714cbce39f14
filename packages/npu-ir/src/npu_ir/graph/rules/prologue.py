"""Rules of the prologue: its nodes are evaluated once, when weights are bound."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from npu_ir.core.node import InputKind, OpNode, Value
from npu_ir.ops.effects import is_pure
from npu_ir.ops.schema import find_op
from npu_ir.plugins import plugin_manager

if TYPE_CHECKING:
    from npu_ir.graph.graph import Graph


UNKNOWN_OP_FIX = "install, or import, the package that defines the op; ops of npu:: are those of npu-passes"


def call_dependence(graph: Graph, value: Value) -> str | None:
    """Return why ``value`` is not known before the graph is called; None if it is."""
    if value.producer is not None:
        if value.producer.in_prologue:
            return None
        return f"%{value.name} is computed by node {value.producer.name!r} of the body"
    if value.kind is InputKind.INPUT:
        return f"%{value.name} is an input of the call"
    if value in graph.updates:
        return f"%{value.name} is updated by the graph"
    return None


def prologue_obstacle(graph: Graph, node: OpNode) -> str | None:
    """Return why ``node`` cannot be in the prologue; None if it can."""
    if graph.owner is not None:
        return f"graph {graph.name!r} is a region: a program has a prologue"
    for value in node.inputs:
        reason = call_dependence(graph, value)
        if reason is not None:
            return reason
    if not is_pure(node):
        plugin_manager.get_plugins()  # they may register the op, or one in its regions
    if not is_pure(node):
        reason = "" if find_op(node.op_type) else ": neither PyTorch nor an installed plugin has it"
        return f"{node.op_type} is not known to compute the same each time, and nothing else{reason}"
    for value in node.outputs:
        if value.type.symbols:
            return f"%{value.name} is {value.type}, of a size that is not fixed"
    return None


def prologue_problems(graph: Graph) -> Iterator[str]:
    """Yield the violations of these rules in the prologue of ``graph``."""
    last, body_node = graph._root, None
    for node in graph._iterate():
        if not node.in_prologue:
            body_node = body_node or node
            continue
        last = node
        if body_node is not None:
            yield f"node {node.name!r} is in the prologue, but stands behind {body_node.name!r} of the body"
        yield from _prologue_obstacles(graph, [node])
    if last is not graph._last_prologue:
        yield "the graph does not know which node of the prologue is its last"


def edited_prologue_problems(graph: Graph, nodes: Iterable[OpNode]) -> Iterator[str]:
    """Yield the violations of these rules by edited nodes that are in the prologue."""
    yield from _prologue_obstacles(graph, [node for node in nodes if node.in_prologue])


def _prologue_obstacles(graph: Graph, nodes: Iterable[OpNode]) -> Iterator[str]:
    for node in nodes:
        reason = prologue_obstacle(graph, node)
        if reason is not None:
            yield f"node {node.name!r} is in the prologue, but {reason}"
