"""Topological order of a graph's nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from npu_ir.errors import GraphError

if TYPE_CHECKING:
    from npu_ir.core.node import OpNode
    from npu_ir.graph.graph import Graph


def topological_order(graph: Graph) -> list[OpNode]:
    """Return the nodes in topological order, which keeps the present order where possible.

    Raises:
        GraphError: The nodes depend on each other in a cycle.
    """
    order: list[OpNode] = []
    placed: set[OpNode] = set()
    for start in graph.nodes:
        _visit(start, order, placed)
    return order


def _visit(start: OpNode, order: list[OpNode], placed: set[OpNode]) -> None:
    """Append ``start`` after its unplaced producers: a depth-first search in postorder."""
    # An explicit stack: a chain of nodes is longer than Python's recursion limit. A producer that is still
    # open is an ancestor in the search, so an edge to it closes a cycle.
    open_nodes: dict[OpNode, None] = {}
    stack = [start]
    while stack:
        node = stack[-1]
        if node in placed:
            stack.pop()
            continue
        needed = [
            value.producer
            for value in node.inputs
            if value.producer is not None and value.producer not in placed
        ]
        if not needed:
            stack.pop()
            open_nodes.pop(node, None)
            placed.add(node)
            order.append(node)
            continue
        open_nodes[node] = None
        for producer in needed:
            if producer in open_nodes:
                raise GraphError(
                    f"the nodes {node.name!r} and {producer.name!r} depend on each other in a cycle"
                )
        stack.extend(reversed(needed))
