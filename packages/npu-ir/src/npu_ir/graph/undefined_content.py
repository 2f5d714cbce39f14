"""Values whose content is whatever was in memory: two runs need not agree in them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from npu_ir.core.node import OpNode, Value
from npu_ir.ops.effects import is_view

if TYPE_CHECKING:
    from npu_ir.graph.graph import Graph

_MAKERS = frozenset({"empty", "empty_like", "empty_permuted", "empty_quantized", "empty_strided"})
# What fills a part of its first input, and leaves the rest.
_FILLERS = frozenset(
    {"as_strided_scatter", "diagonal_scatter", "index_copy", "index_put", "masked_scatter", "scatter"}
    | {"select_scatter", "slice_scatter"}
)


def unfilled(graph: Graph) -> set[Value]:
    """Return the values that memory made without content goes into, as far as it is not overwritten as a whole."""
    found: set[Value] = set()
    for node in graph.nodes:
        name = _name(node)
        is_passed_on = bool(node.inputs) and node.inputs[0] in found and (name in _FILLERS or is_view(node))
        if is_passed_on or name.removeprefix("new_") in _MAKERS:
            found.update(node.outputs)
    return found


def _name(node: OpNode) -> str:
    """Return the name of an ATen op without its overload; "" of any other."""
    parts = node.op_type.split(".")
    return parts[1] if parts[0] == "aten" and len(parts) == 3 else ""
