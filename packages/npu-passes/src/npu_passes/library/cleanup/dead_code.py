"""Dead code elimination."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from npu_ir import Expr, Graph, OpNode, ScalarType, TensorType
from npu_ir.ops.effects import is_pure
from npu_passes.core.base import Pass


class DeadCode(Pass):
    """Remove pure nodes and constants without readers.

    Nodes that draw random numbers or have effects stay, as do parameters, buffers and inputs: they are the
    signature of the graph.
    """

    name = "dead-code"
    is_idempotent = True

    def run(self, graph: Graph) -> bool:
        """Remove dead nodes in one backward sweep, then dead constants."""
        before = graph.edits
        sizes = _DataDependentSizes(graph)
        for node in reversed(graph.nodes):
            if any(value.uses for value in node.outputs) or not is_pure(node):
                continue
            needed = sizes.symbol_needed_from(node)
            if needed is not None:
                self.refuse(node, f"its sizes determine {needed}", rule="unread node")
                continue
            with self.rewrite(graph, "unread node", node):
                sizes.forget(node)
        for value in list(graph.constants.values()):
            if not value.uses:
                graph.erase_argument(value)
        return graph.edits != before


class _DataDependentSizes:
    """Symbols that are determined only by results of nodes, with the number of nodes that use each.

    The first node with a symbol in its types determines it for the others, so it must outlive them.
    """

    def __init__(self, graph: Graph) -> None:
        self._counts: Counter[str] = Counter()
        self._definers: dict[str, OpNode] = {}
        # Symbols that a size of an argument determines need no node.
        known = {name for value in graph.arguments for name in _determined_symbols(value.type)}
        if graph.owner is None and len(known) < len(graph.symbols):
            for node in graph.nodes:
                for name in set(_symbols(node)) - known:
                    self._counts[name] += 1
                    self._definers.setdefault(name, node)

    def symbol_needed_from(self, node: OpNode) -> str | None:
        """Return a symbol that ``node`` determines for other nodes; None if there is none."""
        return next(
            (
                name
                for name in sorted({name for value in node.outputs for name in value.type.symbols})
                if self._counts[name] > 1 and self._definers.get(name) is node
            ),
            None,
        )

    def forget(self, node: OpNode) -> None:
        """Subtract a removed node from the counts."""
        self._counts.subtract(name for name in set(_symbols(node)) if name in self._counts)


def _determined_symbols(type: TensorType | ScalarType) -> Iterator[str]:
    """Yield the symbols that a single size of this type determines."""
    sizes = type.shape if isinstance(type, TensorType) else (type.value,)
    for size in sizes:
        if isinstance(size, Expr) and len(size.symbols) == 1 and size.is_linear_in(*size.symbols):
            yield from size.symbols


def _symbols(node: OpNode) -> Iterator[str]:
    """Yield the symbols in the types of a node's outputs, and of the values in its regions."""
    for value in node.outputs:
        yield from value.type.symbols
    for region in node.regions.values():
        for part in region.graphs():
            for value in part.values:
                yield from value.type.symbols
