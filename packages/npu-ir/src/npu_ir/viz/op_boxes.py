"""Box of a single node."""

from __future__ import annotations

from collections.abc import Sequence

from npu_ir.core.node import OpNode, Value
from npu_ir.viz.captions import make_printable, op_caption, weights_caption
from npu_ir.viz.diagram import Box, BoxKind
from npu_ir.viz.repeats import is_weight


def op_box(
    id: str,
    node: OpNode,
    path: tuple[str, ...],
    around: tuple[str, ...],
    *,
    name_weights: bool = False,
    count: int = 1,
) -> Box:
    """Return the box of ``node``.

    Args:
        id: Unique in the diagram.
        node: Any node.
        path: The module that ran it.
        around: The module in whose frame it is drawn.
        name_weights: Weights have boxes of their own, and are not listed here.
        count: Number of repetitions of the node.
    """
    weights = weights_of([node])
    module = relative_path(path, around)
    names = f"%{node.outputs[0].name}" if node.outputs else node.name
    if len(node.outputs) > 1:
        names += ", ..."
    details = [make_printable(f"{module}: {names}" if module else names)]
    if weights and not name_weights:
        details.append(weights_caption(weights))
    if count > 1:
        details.append(f"x{count}")
    kind = BoxKind.WEIGHTED if weights else BoxKind.OP
    return Box(id, kind, op_caption(node.op_type), tuple(details), make_printable(repr(node), 400))


def relative_path(path: tuple[str, ...], around: tuple[str, ...]) -> str:
    """Return a module path relative to the module it is drawn in."""
    return ".".join(path[len(around) :] if path[: len(around)] == around else path)


def weights_of(nodes: Sequence[OpNode]) -> list[Value]:
    """Return the weights that the nodes read, without duplicates."""
    return list(dict.fromkeys(value for node in nodes for value in node.inputs if is_weight(value)))
