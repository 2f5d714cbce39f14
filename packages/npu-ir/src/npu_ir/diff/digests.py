"""Structural digests of nodes: equal for nodes that compute the same from the same values."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from npu_ir.core.literals import format_literal
from npu_ir.core.node import OpNode, Value

if TYPE_CHECKING:
    from npu_ir.graph.graph import Graph


def node_digests(graph: Graph, arguments: Mapping[Value, int]) -> dict[OpNode, int]:
    """Return a digest for each node: of its op, attributes and types, and of its inputs, transitively.

    Names do not matter, and the nodes may be in any order. Equal digests may, rarely, be a collision.
    """
    return _Digests(graph, arguments).nodes


class _Digests:
    def __init__(self, graph: Graph, arguments: Mapping[Value, int]) -> None:
        self.nodes: dict[OpNode, int] = {}
        self._values = dict(arguments)
        for node in graph.nodes:
            digest = self._digest(node)
            self.nodes[node] = digest
            self._values.update((value, hash((digest, value.index))) for value in node.outputs)

    def digest_of(self, leaf: object) -> int:
        """Return the digest of a value or literal; 0 for a value that is produced later."""
        return self._values.get(leaf, 0) if isinstance(leaf, Value) else hash(format_literal(leaf))

    def _digest(self, node: OpNode) -> int:
        attrs = frozenset((name, format_literal(literal)) for name, literal in node.attrs.items())
        types = tuple(str(value.type) for value in node.outputs)
        inputs = tuple(map(self.digest_of, node.inputs))
        regions = tuple((name, _region_digest(region)) for name, region in node.regions.items())
        return hash((node.op_type, node.operands, attrs, types, inputs, regions))


def _region_digest(region: Graph) -> int:
    digests = _Digests(region, {value: index for index, value in enumerate(region.arguments)})
    return hash((len(region), tuple(map(digests.digest_of, region.results[1]))))
