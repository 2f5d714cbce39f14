"""The entries of a difference: one for each node, and one for each other line that changed."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from npu_ir.core.node import OpNode

if TYPE_CHECKING:
    from npu_ir.diff.graph_diff import GraphDiff


class Status(str, enum.Enum):
    """Outcome for a node or a line."""

    UNCHANGED = "unchanged"
    REMOVED = "removed"
    ADDED = "added"
    CHANGED = "changed"


@dataclass(frozen=True, slots=True)
class NodeDiff:
    """The difference of one node.

    Attributes:
        a: The node before; None if it was added.
        b: The node after; None if it was removed.
        changes: Differences: ``op``, ``type``, ``order``, ``prologue``, and names of arguments.
        was: Names of the nodes that were merged into it, unless that is this one alone.
        merged_into: Name of the node that a removed one was merged into; "" if there is none.
        regions: The differences of the regions that both nodes have, of those that differ.
    """

    a: OpNode | None
    b: OpNode | None
    changes: tuple[str, ...] = ()
    was: tuple[str, ...] = ()
    merged_into: str = ""
    regions: Mapping[str, GraphDiff] = field(default_factory=dict)

    @property
    def status(self) -> Status:
        return status_of(self.a, self.b, self.changes)

    @property
    def name(self) -> str:
        """The name after, or before if the node was removed."""
        node = self.b or self.a
        assert node is not None
        return node.name


@dataclass(frozen=True, slots=True)
class LineDiff:
    """The difference of a line of the text form that is not a node.

    Attributes:
        kind: ``symbol``, ``require``, ``input``, ``param``, ``buffer``, ``state``, ``const``, ``call``,
            ``update`` or ``return``.
        name: The name after, or before if it was removed.
        a: Its line before; None if it was added.
        b: Its line after; None if it was removed.
        changes: Names of the differences.
    """

    kind: str
    name: str
    a: str | None
    b: str | None
    changes: tuple[str, ...] = ()

    @property
    def status(self) -> Status:
        return status_of(self.a, self.b, self.changes)


def status_of(a: object, b: object, changes: tuple[str, ...]) -> Status:
    """Return the status of an entry, given its forms before and after, and the names of its differences."""
    if a is None or b is None:
        return Status.ADDED if a is None else Status.REMOVED
    return Status.CHANGED if changes else Status.UNCHANGED
