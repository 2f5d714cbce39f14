"""What of a graph may be memory that is written when it ends: the arguments that it updates."""

from __future__ import annotations

from npu_ir import Graph, OpNode, Value
from npu_ir.ops.effects import is_view
from npu_ir.ops.schema import find_op
from npu_runtime._torch import OpOverload, is_composite

# They return the tensor that they get, though their schemas do not say so.
_UNDECLARED = ("aten.lift.default", "aten._unsafe_view.default")


def in_updated_memory(graph: Graph) -> set[Value]:
    """Return the values that may be memory of an argument that the graph updates."""
    found = set(graph.updates)
    for node in graph.nodes:
        if not found.isdisjoint(node.inputs) and _may_share(node):
            found.update(node.outputs)
    return found


def _may_share(node: OpNode) -> bool:
    """Whether an output may be memory of an input."""
    op = find_op(node.op_type)
    if not isinstance(op, OpOverload):
        return True
    return is_view(node) or is_composite(op) or node.op_type in _UNDECLARED
