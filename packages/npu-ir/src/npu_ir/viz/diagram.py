"""A drawing as data: boxes, frames around them, edges, and their styles; the input of every output format."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass

TEXT = "#1f2328"
MUTED = "#374151"
LINE = "#6b7280"
FRAME = "#c3cad3"
FRAME_FILL = "#f6f8fa"
FONTS = "Helvetica, Arial, DejaVu Sans, sans-serif"


class BoxKind(str, enum.Enum):
    """Kind of a box; the values are the words of the legend."""

    INPUT = "input"
    OP = "op"
    WEIGHTED = "op with weights"
    MODULE = "module"
    PARAMETER = "parameter"
    BUFFER = "buffer"
    STATE = "optimizer state"
    CONSTANT = "constant"
    OUTPUT = "output"
    UPDATE = "update"
    MORE = "not shown"
    UNCHANGED = "unchanged"
    REMOVED = "removed"
    ADDED = "added"
    CHANGED = "changed"


class EdgeKind(str, enum.Enum):
    """Kind of an edge: plain, or present in only one of two graphs."""

    PLAIN = "plain"
    REMOVED = "removed"
    ADDED = "added"


DIFF_KINDS = frozenset({BoxKind.UNCHANGED, BoxKind.REMOVED, BoxKind.ADDED, BoxKind.CHANGED})
NODE_KINDS = frozenset({BoxKind.OP, BoxKind.WEIGHTED, BoxKind.MODULE, BoxKind.MORE}) | DIFF_KINDS


@dataclass(frozen=True, slots=True)
class Box:
    """A labelled box; its texts are printable."""

    id: str  # unique in its diagram: a lower-case letter and a number
    kind: BoxKind
    title: str
    details: tuple[str, ...] = ()  # further lines
    tooltip: str = ""  # full description on one line


@dataclass(frozen=True, slots=True)
class Frame:
    """A module drawn around its parts, a node around its regions, or a region around its nodes."""

    id: str  # unique in its diagram
    title: str  # the module and its repeat count, the node, or the argument that the region is passed for
    items: tuple[Box | Frame, ...]  # at least two, or one for a region


@dataclass(frozen=True, slots=True)
class Edge:
    """Values that one box produces and another one reads."""

    source: str  # id of a box
    target: str
    label: str = ""  # the type of the value, or the number of values; "" if the boxes show it
    kind: EdgeKind = EdgeKind.PLAIN


@dataclass(frozen=True, slots=True)
class Diagram:
    """A complete drawing."""

    title: str  # the name of the graph
    summary: str  # its size, and the part that is shown
    items: tuple[Box | Frame, ...]  # producers before their readers
    edges: tuple[Edge, ...]  # in the order of their readers

    @property
    def boxes(self) -> tuple[Box, ...]:
        return tuple(item for item in _iterate_items(self.items) if isinstance(item, Box))

    @property
    def frames(self) -> tuple[Frame, ...]:
        """All frames, outer ones before those inside them."""
        return tuple(item for item in _iterate_items(self.items) if isinstance(item, Frame))

    @property
    def kinds(self) -> tuple[BoxKind, ...]:
        """Kinds of box in the diagram, in the order of the legend."""
        present = {box.kind for box in self.boxes}
        return tuple(kind for kind in BoxKind if kind in present)


def _iterate_items(items: tuple[Box | Frame, ...]) -> Iterator[Box | Frame]:
    for item in items:
        yield item
        if isinstance(item, Frame):
            yield from _iterate_items(item.items)


@dataclass(frozen=True, slots=True)
class Style:
    """Style of a kind of box."""

    fill: str  # colour inside
    stroke: str  # colour of the border
    svg: str  # shape in drawings of `npu_ir.viz.svg`
    dot: tuple[str, ...]  # shape of a graphviz node, and its style besides filled
    mermaid: tuple[str, str]  # delimiters around the text of a mermaid node
    dashed: bool = False


STYLES = {
    BoxKind.INPUT: Style("#d8f3dc", "#2d6a4f", "pill", ("oval",), ("([", "])")),
    BoxKind.OP: Style("#ffffff", "#57606a", "rounded", ("box", "rounded"), ("(", ")")),
    BoxKind.WEIGHTED: Style("#dbeafe", "#1d4ed8", "rounded", ("box", "rounded"), ("(", ")")),
    BoxKind.MODULE: Style("#ede9fe", "#5b21b6", "double", ("box", "rounded"), ("[[", "]]")),
    BoxKind.PARAMETER: Style("#fef3c7", "#92400e", "note", ("note",), ("[(", ")]")),
    BoxKind.BUFFER: Style("#ffe4d6", "#9a3412", "note", ("note",), ("[(", ")]")),
    BoxKind.STATE: Style("#f3e8d2", "#713f12", "note", ("note",), ("[(", ")]")),
    BoxKind.CONSTANT: Style("#e5e7eb", "#374151", "note", ("note",), ("[/", "/]")),
    BoxKind.OUTPUT: Style("#cffafe", "#155e75", "pill", ("oval",), ("([", "])")),
    BoxKind.UPDATE: Style("#fce7f3", "#9d174d", "hexagon", ("box", "diagonals"), ("{{", "}}")),
    BoxKind.MORE: Style("#ffffff", "#57606a", "rounded", ("box", "rounded"), ("(", ")"), dashed=True),
    BoxKind.UNCHANGED: Style("#f3f4f6", "#9ca3af", "rounded", ("box", "rounded"), ("(", ")")),
    BoxKind.REMOVED: Style("#fee2e2", "#b91c1c", "rounded", ("box", "rounded"), ("(", ")"), dashed=True),
    BoxKind.ADDED: Style("#dcfce7", "#15803d", "rounded", ("box", "rounded"), ("(", ")")),
    BoxKind.CHANGED: Style("#fde68a", "#b45309", "double", ("box", "rounded"), ("[[", "]]")),
}


@dataclass(frozen=True, slots=True)
class EdgeStyle:
    """Style of a kind of edge: its colour, and dashed or solid."""

    colour: str
    dashed: bool = False


EDGE_STYLES = {
    EdgeKind.PLAIN: EdgeStyle(LINE),
    EdgeKind.REMOVED: EdgeStyle("#b91c1c", dashed=True),
    EdgeKind.ADDED: EdgeStyle("#15803d"),
}
