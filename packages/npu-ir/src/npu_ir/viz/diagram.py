"""A drawing as data: boxes, frames around them, and edges. Every output form is written from it."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass


class BoxKind(str, enum.Enum):
    """What a box stands for; the values are the words of the legend."""

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
    """What became of an edge."""

    PLAIN = "plain"
    REMOVED = "removed"
    ADDED = "added"


DIFF_KINDS = frozenset({BoxKind.UNCHANGED, BoxKind.REMOVED, BoxKind.ADDED, BoxKind.CHANGED})
NODE_KINDS = frozenset({BoxKind.OP, BoxKind.WEIGHTED, BoxKind.MODULE, BoxKind.MORE}) | DIFF_KINDS


@dataclass(frozen=True, slots=True)
class Box:
    """One thing to draw.

    Attributes:
        id: Unique in its diagram; a lower-case letter and a number.
        kind: What it stands for.
        title: What it is called; printable.
        details: Further lines; printable.
        tooltip: Everything there is to say in one line; printable.
    """

    id: str
    kind: BoxKind
    title: str
    details: tuple[str, ...] = ()
    tooltip: str = ""


@dataclass(frozen=True, slots=True)
class Frame:
    """A module drawn around its parts, a node around its regions, or a region around its nodes.

    Attributes:
        id: Unique in its diagram.
        title: The module, and how often it repeats; the node; or the argument that the region fills.
        items: At least two, or one of a region.
    """

    id: str
    title: str
    items: tuple[Box | Frame, ...]


@dataclass(frozen=True, slots=True)
class Edge:
    """Values that one box makes and another one reads.

    Attributes:
        source: Id of a box.
        target: Id of another box.
        label: The type of the value, or how many values; "" where the boxes tell.
        kind: Whether only one of two graphs has it.
    """

    source: str
    target: str
    label: str = ""
    kind: EdgeKind = EdgeKind.PLAIN


@dataclass(frozen=True, slots=True)
class Diagram:
    """What to draw.

    Attributes:
        title: The name of the graph.
        summary: Its size, and what of it is shown.
        items: Nothing reads what comes behind it.
        edges: In the order of what reads them.
    """

    title: str
    summary: str
    items: tuple[Box | Frame, ...]
    edges: tuple[Edge, ...]

    @property
    def boxes(self) -> tuple[Box, ...]:
        return tuple(item for item in _everything(self.items) if isinstance(item, Box))

    @property
    def frames(self) -> tuple[Frame, ...]:
        """Every frame before those in it."""
        return tuple(item for item in _everything(self.items) if isinstance(item, Frame))

    @property
    def kinds(self) -> tuple[BoxKind, ...]:
        """The kinds of box in the diagram, in the order of the legend."""
        present = {box.kind for box in self.boxes}
        return tuple(kind for kind in BoxKind if kind in present)


def _everything(items: tuple[Box | Frame, ...]) -> Iterator[Box | Frame]:
    for item in items:
        yield item
        if isinstance(item, Frame):
            yield from _everything(item.items)
