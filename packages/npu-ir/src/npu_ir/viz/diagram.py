"""A drawing as data: boxes, frames around them, and edges; the input of every output format."""

from __future__ import annotations

import enum
from collections.abc import Iterator
from dataclasses import dataclass


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
    """A labelled box.

    Attributes:
        id: Unique in its diagram; a lower-case letter and a number.
        kind: Its kind, which determines its style.
        title: First line; printable.
        details: Further lines; printable.
        tooltip: Full description on one line; printable.
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
        title: The module and its repeat count; the node; or the argument that the region is passed for.
        items: At least two, or one for a region.
    """

    id: str
    title: str
    items: tuple[Box | Frame, ...]


@dataclass(frozen=True, slots=True)
class Edge:
    """Values that one box produces and another one reads.

    Attributes:
        source: Id of a box.
        target: Id of another box.
        label: The type of the value, or the number of values; "" if the boxes show it.
        kind: Plain, or present in only one of two graphs.
    """

    source: str
    target: str
    label: str = ""
    kind: EdgeKind = EdgeKind.PLAIN


@dataclass(frozen=True, slots=True)
class Diagram:
    """A complete drawing.

    Attributes:
        title: The name of the graph.
        summary: Its size, and the part that is shown.
        items: Producers before their readers.
        edges: In the order of their readers.
    """

    title: str
    summary: str
    items: tuple[Box | Frame, ...]
    edges: tuple[Edge, ...]

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
