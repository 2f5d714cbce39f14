"""Common subexpression elimination: merge nodes that compute the same value."""

from __future__ import annotations

from collections.abc import Hashable

from npu_ir import Graph, OpNode, Value
from npu_ir.core.tensor_bytes import tensor_bytes
from npu_ir.ops.effects import is_pure
from npu_passes.core.base import Pass
from npu_passes.rewriting.aliasing import AliasAnalysis

_LARGEST_CONSTANT = 4096


class Cse(Pass):
    """Replace a node by an earlier one with the same op, inputs, attributes and types.

    Small constants with the same content are merged, too. Nodes that draw random numbers, have effects or own
    regions stay; so do two results of the graph, each of which the caller may write into.
    """

    name = "cse"
    is_idempotent = True

    def run(self, graph: Graph) -> bool:
        """Merge duplicates in one forward sweep."""
        before = graph.edits
        sharing = AliasAnalysis(graph)
        self._merge_constants(graph, sharing)
        first: dict[Hashable, OpNode] = {}
        for node in graph.nodes:
            known = first.setdefault(_key(node), node)
            if known is node or not _is_same(known, node) or not self._merge(graph, sharing, known, node):
                sharing.add_node(node)
        return graph.edits != before

    def _merge(self, graph: Graph, sharing: AliasAnalysis, known: OpNode, node: OpNode) -> bool:
        pairs = [pair for pair in zip(node.outputs, known.outputs, strict=True) if pair[0].uses]
        for old, new in pairs:
            obstacle = sharing.find_obstacle(old, new)
            if obstacle is not None:
                self.refuse(node, obstacle, rule="same node")
                return False
        if not pairs:
            return False
        with self.rewrite(graph, "same node", known, node) as edit:
            for old, new in pairs:
                edit.replace(old, new)
                sharing.record_replacement(old, new)
        return True

    def _merge_constants(self, graph: Graph, sharing: AliasAnalysis) -> None:
        first: dict[Hashable, Value] = {}
        for value in graph.constants.values():
            data = value.data
            if data is None or data.nbytes > _LARGEST_CONSTANT or not value.uses:
                continue
            known = first.setdefault((value.type, bytes(tensor_bytes(data).tolist())), value)
            if known is not value and sharing.find_obstacle(value, known) is None:
                graph.replace_all_uses(value, known)
                sharing.record_replacement(value, known)


def _key(node: OpNode) -> Hashable:
    """Return a key that is equal for nodes with the same op, inputs and attributes."""
    # As text, in which 1, 1.0 and True differ, and nan equals nan.
    return node.op_type, node.inputs, node.operands, repr(sorted(node.attrs.items()))


def _is_same(known: OpNode, node: OpNode) -> bool:
    """Return whether nodes with the same op and arguments compute the same."""
    types = [value.type for value in known.outputs]
    return not node.regions and types == [value.type for value in node.outputs] and is_pure(node)
