"""Canonical form: one op and one spelling of its arguments per computation."""

from __future__ import annotations

from collections.abc import Container

from npu_ir import Graph, OpNode, Value
from npu_ir.graph.specialize import known_number, replace_by_literal
from npu_ir.plugins import plugin_manager
from npu_passes.core.base import Pass
from npu_passes.library.cleanup.canonicalize.canonical_calls import Call, canonical_attrs, canonical_call
from npu_passes.library.cleanup.canonicalize.static_numbers import (
    accepts_literal,
    is_true_assertion,
    literal_uses,
    static_number,
)
from npu_passes.rewriting.aliasing import AliasAnalysis, selected_input

_COPIES = frozenset(
    f"aten.{name}.default" for name in ("alias", "clone", "detach", "lift", "lift_fresh", "lift_fresh_copy")
)


class Canonicalize(Pass):
    """Rewrite each computation to its canonical form and remove bookkeeping ops. Results stay bitwise equal.

    1. Elements of tuples (``getitem``) are replaced by the values themselves. Sizes that are static in the
       types, and numbers computed from them, become literals.
    2. ``alias``, ``detach``, ``lift_fresh``, ``clone`` and the like are removed, where the strides stay and
       no result of the graph becomes an input or another result.
    3. Synonymous ops become one: ``reshape`` for ops that only change the shape (``view``, ``flatten``, ...),
       ``permute`` for ops that reorder axes, ``expand``, ``div``, ``.Tensor`` overloads for ``.Scalar`` ones.
    4. Arguments equal to their defaults are omitted, axes are counted from the front, and number operands of
       floating-point tensors in ``add``, ``sub``, ``mul`` and ``div`` are floats.
    """

    name = "canonicalize"
    is_idempotent = True

    def run(self, graph: Graph) -> bool:
        """Rewrite the body in one forward sweep."""
        before = graph.edits
        sharing = AliasAnalysis(graph)
        for value in graph.inputs:
            known = known_number(value)
            if known is not None:
                replace_by_literal(graph, value, known, literal_uses(value))
        executed = plugin_manager.registry().table("execution")
        for node in graph.body:
            self._rewrite(graph, sharing, node, executed)
            if not node.is_erased:
                sharing.add_node(node)
        return graph.edits != before

    def _rewrite(self, graph: Graph, sharing: AliasAnalysis, node: OpNode, executed: Container[str]) -> None:
        part = selected_input(node)
        if part is not None:
            self._replace(sharing, node, part, "part of a tuple")
        elif node.op_type in _COPIES:
            self._replace(sharing, node, node.inputs[0], "copy")
        elif is_true_assertion(node):
            with self.rewrite(graph, "true assertion", node) as edit:
                edit.erase(node)
        elif not self._replace_by_number(graph, node) and node.op_type not in executed:
            self._canonicalize_call(graph, sharing, node)

    def _replace(self, sharing: AliasAnalysis, node: OpNode, new: Value, rule: str) -> None:
        """Replace the output of ``node`` by a value of the same type."""
        old = node.outputs[0]
        if old.uses and old.type == new.type:
            sharing.replace_output(self, node, old, new, rule)

    def _replace_by_number(self, graph: Graph, node: OpNode) -> bool:
        """Replace ``node`` by the number that it computes, if it is known; return whether it is."""
        known = static_number(node)
        if known is None:
            return False
        if accepts_literal(node.outputs[0]):
            value = node.outputs[0]
            with self.rewrite(graph, "known number", node):
                replace_by_literal(graph, value, known, literal_uses(value))
        return True

    def _canonicalize_call(self, graph: Graph, sharing: AliasAnalysis, node: OpNode) -> None:
        call = canonical_call(node)
        if call is not None and node.outputs[0].uses:
            node = self._replace_call(graph, sharing, node, call)
        attrs = canonical_attrs(node)
        if attrs is not None:
            with self.rewrite(graph, "arguments", node):
                graph.set_attrs(node, attrs)

    def _replace_call(self, graph: Graph, sharing: AliasAnalysis, node: OpNode, call: Call) -> OpNode:
        (old,) = node.outputs
        with self.rewrite(graph, call.rule, node) as edit:
            new = edit.call(call.op_type, type=old.type, name=node.name, **call.arguments)
            edit.replace(old, new)
            sharing.record_replacement(old, new)
        assert new.producer is not None
        sharing.add_node(new.producer)
        return new.producer
