"""The boxes of what goes into a graph and what comes out of it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING

from npu_ir.node import InputKind, Value
from npu_ir.viz.captions import names_caption, printable, type_caption
from npu_ir.viz.diagram import Box, BoxKind

if TYPE_CHECKING:
    from npu_ir.graph import Graph

# With more of a kind than this, they share a box.
_MAX_OF_A_KIND = 8
_WEIGHT_KINDS = {
    InputKind.PARAMETER: BoxKind.PARAMETER,
    InputKind.BUFFER: BoxKind.BUFFER,
    InputKind.CONSTANT: BoxKind.CONSTANT,
}


@dataclass(slots=True)
class ArgumentBoxes:
    """Boxes, and the box each of their values is in."""

    boxes: list[Box] = field(default_factory=list)
    box_of: dict[Value, str] = field(default_factory=dict)

    def add(self, box: Box, values: Sequence[Value]) -> None:
        self.boxes.append(box)
        self.box_of.update(dict.fromkeys(values, box.id))


@dataclass(frozen=True, slots=True)
class ResultBox:
    """A box that nothing reads, and the values that go into it."""

    box: Box
    values: tuple[Value, ...]


def input_boxes(graph: Graph) -> ArgumentBoxes:
    """Return a box for each input of ``graph``, or one for all of many."""
    found = ArgumentBoxes()
    if len(graph.inputs) > _MAX_OF_A_KIND:
        box = Box("i0", BoxKind.INPUT, f"{len(graph.inputs)} inputs", (names_caption(graph.inputs),))
        found.add(box, graph.inputs)
        return found
    for index, value in enumerate(graph.inputs):
        found.add(Box(f"i{index}", BoxKind.INPUT, printable(value.name), (type_caption(value.type),)), [value])
    return found


def weight_boxes(readers: Mapping[Value, Sequence[str]]) -> ArgumentBoxes:
    """Return boxes for weights; those of a kind that the same boxes read share one.

    Args:
        readers: For each weight the ids of the boxes that read it.
    """
    found = ArgumentBoxes()
    together: defaultdict[tuple[BoxKind, tuple[str, ...]], list[Value]] = defaultdict(list)
    for value, boxes in readers.items():
        assert value.argument is not None
        together[_WEIGHT_KINDS[value.argument.kind], tuple(boxes)].append(value)
    for number, ((kind, _), values) in zip(count(), together.items(), strict=False):
        found.add(_weight_box(f"w{number}", kind, values), values)
    return found


def _weight_box(id: str, kind: BoxKind, values: Sequence[Value]) -> Box:
    if len(values) == 1:
        return Box(id, kind, _target(values[0]), (type_caption(values[0].type),))
    details = [f"{_target(value)}  {type_caption(value.type)}" for value in values[:4]]
    if len(values) > len(details):
        details.append("...")
    return Box(id, kind, f"{len(values)} {kind.value}s", tuple(details))


def output_boxes(graph: Graph) -> list[ResultBox]:
    """Return a box for each value that ``graph`` returns, or one for all of many."""
    structure, leaves = graph.results
    named = [
        (f"output{path}", leaf)
        for path, leaf in zip(structure.leaf_paths(), leaves, strict=True)
        if isinstance(leaf, Value)
    ]
    return _result_boxes("o", BoxKind.OUTPUT, named)


def update_boxes(graph: Graph) -> list[ResultBox]:
    """Return a box for each input or buffer that ``graph`` updates, or one for all of many."""
    named = [(f"new {_target(target)}", value) for target, value in graph.updates.items()]
    return _result_boxes("u", BoxKind.UPDATE, named)


def _result_boxes(letter: str, kind: BoxKind, named: Sequence[tuple[str, Value]]) -> list[ResultBox]:
    if len(named) > _MAX_OF_A_KIND:
        details = [printable(name) for name, _ in named[:2]] + ["..."]
        box = Box(f"{letter}0", kind, f"{len(named)} {kind.value}s", tuple(details))
        return [ResultBox(box, tuple(value for _, value in named))]
    found = []
    for index, (name, value) in enumerate(named):
        details = [type_caption(value.type)]
        if value.argument is not None:
            details.append(f"is {_target(value)}")
        found.append(ResultBox(Box(f"{letter}{index}", kind, printable(name), tuple(details)), (value,)))
    return found


def _target(value: Value) -> str:
    return printable(value.name if value.argument is None else value.argument.target)
