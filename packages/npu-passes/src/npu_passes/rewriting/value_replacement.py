"""Replacement of values by others, with their strides, and copied where callers would see shared memory."""

from __future__ import annotations

from npu_ir import Graph, TensorType, Value
from npu_ir.ops.effects import is_view
from npu_passes.core.edit import Edit
from npu_passes.errors import PassError
from npu_passes.rewriting.aliasing import AliasAnalysis
from npu_passes.rewriting.layout import can_convert_strides, convert_strides, has_same_strides


def match_strides(edit: Edit, value: Value, old: Value) -> Value:
    """Return ``value``, or a copy, in the strides of ``old``, which readers such as views may depend on.

    Raises:
        PassError: The strides differ, and those of ``old`` overlap or have gaps.
    """
    if not (isinstance(old.type, TensorType) and old.type.same_shape_and_dtype(value.type)):
        return value
    if not can_convert_strides(value.type, old.type, edit.graph.symbols):
        raise PassError(
            f"the replacement is {value.type}, and %{old.name} is {old.type}: the strides differ",
            fix="let the op of the replacement return a tensor in these strides, or refuse such values with"
            " where=",
        )
    return convert_strides(edit, value, old.type)


class ValueReplacer:
    """Replacer of values during one run of a pass.

    A result of the graph that did not share memory still does not: it becomes a copy if a rule removes
    the op that allocated it.

    Args:
        graph: The graph to rewrite.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._sharing: AliasAnalysis | None = None

    def replace(self, edit: Edit, old: Value, new: Value) -> str | None:
        """Replace every use of ``old`` by ``new``, or a copy of it, and return None.

        If ``old`` already is a copy of ``new`` and has to be one, leave it and return the reason.
        """
        if _is_copy(old, new):
            reason = self._reason_to_copy(edit, old, new)
            if reason is not None:
                return reason
        placed = match_strides(edit, new, old)
        # A new node that is not a view has memory of its own; anything else may alias what callers see.
        if placed.producer is None or placed.producer.name not in edit.made or is_view(placed.producer):
            sharing = self._alias_analysis(edit)
            if sharing.find_obstacle(old, placed) is None:
                sharing.record_replacement(old, placed)
            else:
                placed = match_strides(edit, edit.call("aten.clone.default", placed), old)
        edit.replace(old, placed)
        return None

    def _reason_to_copy(self, edit: Edit, old: Value, new: Value) -> str | None:
        if not has_same_strides(new.type, old.type, self._graph.symbols):
            return f"it is a copy of %{new.name} in other strides"
        return self._alias_analysis(edit).find_obstacle(old, new)

    def _alias_analysis(self, edit: Edit) -> AliasAnalysis:
        """Return the alias analysis of the graph, including the new nodes of ``edit``."""
        nodes = [self._graph.node(name) for name in edit.made]
        if self._sharing is None:
            self._sharing = AliasAnalysis(self._graph)
            nodes = list(self._graph.nodes)
        for node in nodes:
            self._sharing.add_node(node)
        return self._sharing


def _is_copy(old: Value, new: Value) -> bool:
    node = old.producer
    return node is not None and node.op_type == "aten.clone.default" and node.inputs[0] is new
