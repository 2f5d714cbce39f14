"""Values with uninitialized content, in which two runs need not agree."""

from __future__ import annotations

from typing import TYPE_CHECKING

from npu_ir.core.node import OpNode, Value
from npu_ir.ops.effects import is_view

if TYPE_CHECKING:
    from npu_ir.graph.graph import Graph

_MAKERS = frozenset({"empty", "empty_like", "empty_permuted", "empty_quantized", "empty_strided"})
# Ops that overwrite a part of their first input, and keep the rest.
_FILLERS = frozenset(
    {
        "as_strided_scatter",
        "diagonal_scatter",
        "index_copy",
        "index_put",
        "masked_scatter",
        "scatter",
        "select_scatter",
        "slice_scatter",
    }
)


def find_uninitialized_values(graph: Graph) -> set[Value]:
    """Return the values that may contain uninitialized memory.

    It spreads through views and ops that overwrite only a part.
    """
    values: set[Value] = set()
    for node in graph.nodes:
        name = _name(node)
        is_passed_on = bool(node.inputs) and node.inputs[0] in values and (name in _FILLERS or is_view(node))
        if is_passed_on or name.removeprefix("new_") in _MAKERS:
            values.update(node.outputs)
    return values


def _name(node: OpNode) -> str:
    """Return the name of an ATen op without its overload; "" of any other."""
    parts = node.op_type.split(".")
    return parts[1] if parts[0] == "aten" and len(parts) == 3 else ""
