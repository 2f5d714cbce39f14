"""Putting values in the place of others: in the same memory order, and in memory of their own where that is seen."""

from __future__ import annotations

from npu_ir import Graph, OpNode, TensorType, Value
from npu_ir.ops.effects import is_view
from npu_passes.errors import PassError
from npu_passes.rewriting import Edit
from npu_passes.sharing import Sharing
from npu_passes.strides import can_be_laid_out, laid_out


def in_strides_of(edit: Edit, value: Value, old: Value) -> Value:
    """Return ``value``, or a copy of it, in the strides of ``old``: what reads it may depend on them, as views do.

    Raises:
        PassError: They differ in strides, and those of ``old`` overlap or have gaps.
    """
    if not (isinstance(old.type, TensorType) and old.type.same_shape_and_dtype(value.type)):
        return value
    if not can_be_laid_out(value.type, old.type, edit.graph.symbols):
        raise PassError(
            f"the replacement is {value.type}, and %{old.name} is {old.type}: the strides differ",
            fix="let the op of the replacement return a tensor in these strides, or refuse such values with where=",
        )
    return laid_out(edit, value, old.type)


class Placing:
    """Puts values in the place of others during one run of a pass.

    A result of the graph that was a tensor of its own stays one: where a rule takes away the op that made it new, it
    becomes a copy.

    Args:
        graph: The graph that is rewritten.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._sharing: Sharing | None = None

    def put(self, edit: Edit, old: Value, new: Value) -> None:
        """Make everything that reads ``old`` read ``new``, or a copy of it."""
        placed = in_strides_of(edit, new, old)
        made = [self._graph.node(name) for name in edit.made]
        if self._may_share(placed, made) and self._shares(made, old, placed):
            placed = in_strides_of(edit, edit.call("aten.clone.default", placed), old)
        edit.replace(old, placed)

    def _may_share(self, new: Value, made: list[OpNode]) -> bool:
        return new.producer not in made or is_view(new.producer)

    def _shares(self, made: list[OpNode], old: Value, new: Value) -> bool:
        """Whether ``new`` would let two tensors share memory that the caller sees."""
        if self._sharing is None:
            self._sharing = Sharing(self._graph)
            made = list(self._graph.nodes)
        for node in made:
            self._sharing.pass_by(node)
        if self._sharing.obstacle(old, new) is not None:
            return True
        self._sharing.replaced(old, new)
        return False
