"""Boxes of single nodes, and of the arguments, results and updates of a graph."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from npu_ir.core.node import InputKind, OpNode, Value
from npu_ir.viz.captions import (
    is_weight,
    make_printable,
    names_caption,
    op_caption,
    type_caption,
    weights_caption,
)
from npu_ir.viz.diagram import Box, BoxKind

if TYPE_CHECKING:
    from npu_ir.graph.graph import Graph
# More inputs, or more results, than this share a box.
_MAX_OF_A_KIND = 8
_MAX_LINES = 4
_WEIGHT_KINDS = {
    InputKind.PARAMETER: BoxKind.PARAMETER,
    InputKind.BUFFER: BoxKind.BUFFER,
    InputKind.STATE: BoxKind.STATE,
    InputKind.CONSTANT: BoxKind.CONSTANT,
}


def op_box(
    id: str,
    node: OpNode,
    path: tuple[str, ...],
    around: tuple[str, ...],
    *,
    name_weights: bool = False,
    count: int = 1,
) -> Box:
    """Return the box of ``node``, which the module ``path`` ran and which is repeated ``count`` times.

    It is drawn in the frame of the module ``around``. With ``name_weights``, weights have boxes of their own,
    and are not listed here.
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
    return ".".join(path[len(around) :] if path[: len(around)] == around else path)


def weights_of(nodes: Sequence[OpNode]) -> list[Value]:
    """Return the weights that the nodes read, without duplicates."""
    return list(dict.fromkeys(value for node in nodes for value in node.inputs if is_weight(value)))


@dataclass(frozen=True, slots=True)
class ArgumentBox:
    """A box, the values that leave or enter it, and the boxes of nodes that read or produce them."""

    box: Box
    values: tuple[Value, ...]
    near: tuple[str, ...] = ()


def input_boxes(graph: Graph) -> list[ArgumentBox]:
    """Return a box for each input of ``graph``, or one for all if there are many."""
    if len(graph.inputs) > _MAX_OF_A_KIND:
        box = Box("i0", BoxKind.INPUT, f"{len(graph.inputs)} inputs", (names_caption(graph.inputs),))
        return [ArgumentBox(box, graph.inputs)]
    return [
        _values_box(f"i{index}", BoxKind.INPUT, [(value.target, value)])
        for index, value in enumerate(graph.inputs)
    ]


def weight_boxes(readers: Mapping[Value, Sequence[str]]) -> list[ArgumentBox]:
    """Return boxes for weights, given the readers of each; those of one kind and readers share a box."""
    together: defaultdict[tuple[BoxKind, tuple[str, ...]], list[tuple[str, Value]]] = defaultdict(list)
    for value, ids in readers.items():
        assert value.kind is not None
        together[_WEIGHT_KINDS[value.kind], tuple(ids)].append((value.target, value))
    return [
        _values_box(f"w{index}", kind, named, near)
        for index, ((kind, near), named) in enumerate(together.items())
    ]


def update_boxes(graph: Graph, source_of: Callable[[Value], str | None]) -> list[ArgumentBox]:
    """Return boxes for the updates of ``graph``; values produced by one box share a box."""
    together: defaultdict[str | None, list[tuple[str, Value]]] = defaultdict(list)
    for target, value in graph.updates.items():
        together[source_of(value)].append((target.target, value))
    return [
        _values_box(f"u{index}", BoxKind.UPDATE, named, () if source is None else (source,))
        for index, (source, named) in enumerate(together.items())
    ]


def output_boxes(graph: Graph) -> list[ArgumentBox]:
    """Return a box for each value that ``graph`` returns, or one for all if there are many."""
    structure, leaves = graph.results
    named = [
        (f"output{path}", leaf)
        for path, leaf in zip(structure.leaf_paths(), leaves, strict=True)
        if isinstance(leaf, Value)
    ]
    if len(named) > _MAX_OF_A_KIND:
        return [_values_box("o0", BoxKind.OUTPUT, named)]
    boxes = []
    for index, (name, value) in enumerate(named):
        details = [type_caption(value.type)]
        if value.argument is not None:
            details.append(f"is {make_printable(value.target)}")
        boxes.append(
            ArgumentBox(Box(f"o{index}", BoxKind.OUTPUT, make_printable(name), tuple(details)), (value,))
        )
    return boxes


def _values_box(
    id: str, kind: BoxKind, named: Sequence[tuple[str, Value]], near: tuple[str, ...] = ()
) -> ArgumentBox:
    """Return a box for several values: their common module if any, then the first names and types."""
    values = tuple(value for _, value in named)
    if len(named) == 1:
        box = Box(id, kind, make_printable(named[0][0]), (type_caption(values[0].type),))
        return ArgumentBox(box, values, near)
    modules = {name.rpartition(".")[0] for name, _ in named}
    module = modules.pop() if len(modules) == 1 else ""
    lines = [
        f"{make_printable(name[len(module) :].removeprefix('.'))}: {type_caption(value.type)}"
        for name, value in named[:_MAX_LINES]
    ]
    if len(named) > len(lines):
        lines.append("...")
    box = Box(id, kind, make_printable(module) or f"{len(named)} {kind.value}s", tuple(lines))
    return ArgumentBox(box, values, near)
