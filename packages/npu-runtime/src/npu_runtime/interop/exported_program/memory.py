"""Aliases of mutated arguments, whose memory is written at the end of an exported program."""

from __future__ import annotations

from npu_ir import Graph, OpNode, Value
from npu_ir.ops.effects import is_view
from npu_ir.ops.schema import find_op, schema_of
from npu_runtime._torch.ops import OpOverload

# They return their argument, or a view of it, which their schemas do not declare.
_UNDECLARED = ("aten.lift.default", "aten._unsafe_view.default")


def aliases_of_mutated(graph: Graph) -> set[Value]:
    """Return the values that may alias an argument that the graph updates."""
    aliases = set(graph.updates)
    for node in graph.nodes:
        if not aliases.isdisjoint(node.inputs) and _may_alias(node):
            aliases.update(node.outputs)
    return aliases


def _may_alias(node: OpNode) -> bool:
    """Return whether an output may alias an input."""
    op = find_op(node.op_type)
    if not isinstance(op, OpOverload):
        return True
    return is_view(node) or schema_of(op).is_composite or node.op_type in _UNDECLARED
