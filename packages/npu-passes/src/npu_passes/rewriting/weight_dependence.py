"""Weight dependence: values that are known once weights are bound, before the graph is called."""

from __future__ import annotations

from npu_ir import Graph, InputKind, OpNode, Value
from npu_ir.ops.effects import is_pure


def is_weight(graph: Graph, value: Value) -> bool:
    """Return whether ``value`` depends only on weights and constants.

    These are parameters, constants, buffers that the graph does not mutate, results of the prologue, and
    results of pure nodes on such values, which `constant-folding` moves into the prologue. For many values of
    one graph, `Weights` is faster: this is linear in the number of nodes.
    """
    return value in Weights(graph)


class Weights:
    """The values of a graph that depend only on weights and constants, found in one sweep on first use.

    Values created later are included only if they are added.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._known: set[Value] | None = None

    def __contains__(self, value: Value) -> bool:
        return value in self._values()

    def add(self, value: Value) -> None:
        self._values().add(value)

    def _values(self) -> set[Value]:
        if self._known is None:
            self._known = {value for value in self._graph.arguments if is_weight_argument(self._graph, value)}
            for node in self._graph.nodes:
                if node.in_prologue or (self._known.issuperset(node.inputs) and _is_weight_preserving(node)):
                    self._known.update(node.outputs)
        return self._known


def _is_weight_preserving(node: OpNode) -> bool:
    """Return whether a node's results depend only on weights if its inputs do."""
    return not node.regions and is_pure(node) and not any(value.type.symbols for value in node.outputs)


def is_weight_argument(graph: Graph, value: Value) -> bool:
    """Return whether an argument is the same in every call: neither an input nor mutated."""
    return value.kind not in (None, InputKind.INPUT) and value not in graph.updates


def weight_problem(graph: Graph, weight: Value) -> str | None:
    """Return the reason why ``weight`` cannot be replaced when weights are bound; None if it can."""
    if graph.owner is not None:
        return "it is in a region: a program has a prologue"
    if weight.producer is not None:
        if weight.producer.in_prologue:
            return None
        known = is_weight(graph, weight)
        where = "in the body: run constant-folding first" if known else "at each call"
        return f"its weight %{weight.name} is computed {where}"
    return (
        None if is_weight_argument(graph, weight) else f"its weight %{weight.name} is an input, or is updated"
    )
