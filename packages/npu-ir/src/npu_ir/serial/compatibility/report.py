"""The report on a graph file: for each op type, changes of its schema and what they mean for its calls."""

from __future__ import annotations

import enum
from collections import Counter
from dataclasses import dataclass
from typing import Any, Literal

_SHOWN_NODES = 5


class Verdict(enum.Enum):
    """The meaning of a change, or of all changes of an op, for the calls in a graph; from good to bad."""

    UNCHANGED = "unchanged"
    COMPATIBLE = "compatible"
    MIGRATABLE = "can be migrated"
    INCOMPATIBLE = "not compatible"

    @property
    def is_usable(self) -> bool:
        """True if the calls mean what they did, as they stand."""
        return self in (Verdict.UNCHANGED, Verdict.COMPATIBLE)


_BY_SEVERITY = tuple(Verdict)


@dataclass(frozen=True, slots=True)
class ArgumentEdit:
    """One edit of every call of an op that a change asks for.

    Attributes:
        action: ``"write"`` the argument where a call leaves it out, ``"rename"`` or ``"drop"`` it; or
            ``"replace"`` the op by its successor.
        content: The JSON form of the literal to write, the new name, or the successor.
    """

    action: Literal["write", "rename", "drop", "replace"]
    argument: str = ""
    content: Any = None


@dataclass(frozen=True, slots=True)
class Change:
    """One difference between the recorded and the present schema.

    Attributes:
        kind: ``"new argument"``, ``"changed default"``, ``"removed overload"`` and the like.
        argument: The argument that changed; empty if the change is of the op as a whole.
        nodes: The names of the nodes that the change concerns.
        edit: The edit that makes these nodes mean what they did, if there is one.
    """

    kind: str
    verdict: Verdict
    text: str
    argument: str = ""
    fix: str = ""
    nodes: tuple[str, ...] = ()
    edit: ArgumentEdit | None = None

    def __str__(self) -> str:
        shown = [*self.nodes[:_SHOWN_NODES], *(["..."] if len(self.nodes) > _SHOWN_NODES else [])]
        text = f"{self.text} ({len(self.nodes)} of its nodes: {', '.join(shown)})" if shown else self.text
        return f"{text}\n    fix: {self.fix}" if self.fix else text


@dataclass(frozen=True, slots=True)
class OpCompatibility:
    """The changes of one op type; ``recorded`` and ``present`` are schemas as text, None if there is none."""

    op_type: str
    recorded: str | None
    present: str | None
    changes: tuple[Change, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """The worst verdict of its changes."""
        verdicts = [change.verdict for change in self.changes]
        return max(verdicts, key=_BY_SEVERITY.index, default=Verdict.UNCHANGED)


@dataclass(frozen=True, slots=True)
class CompatibilityReport:
    """The op types of a graph file, each compared with the op of this process; ``str`` returns it as text.

    Attributes:
        recorded_torch: The version of PyTorch that the file was made with.
        present_torch: The version of PyTorch here.
        ops: Every op type of the graph, in order of first use.
    """

    recorded_torch: str
    present_torch: str
    ops: tuple[OpCompatibility, ...]

    @property
    def is_compatible(self) -> bool:
        """True if every call means here what it meant where the file was made."""
        return all(op.verdict.is_usable for op in self.ops)

    @property
    def is_migratable(self) -> bool:
        """True if `migrate_ir` can make every call mean what it did."""
        return all(op.verdict is not Verdict.INCOMPATIBLE for op in self.ops)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON data."""
        ops = [
            {
                "op": op.op_type,
                "verdict": op.verdict.value,
                "recorded": op.recorded,
                "present": op.present,
                "changes": [_change_to_dict(change) for change in op.changes],
            }
            for op in self.ops
        ]
        return {
            "compatible": self.is_compatible,
            "migratable": self.is_migratable,
            "recorded_torch": self.recorded_torch,
            "present_torch": self.present_torch,
            "ops": ops,
        }

    def __str__(self) -> str:
        counts = Counter(op.verdict for op in self.ops)
        summary = ", ".join(f"{counts[verdict]} {verdict.value}" for verdict in Verdict if counts[verdict])
        lines = [
            f"made with PyTorch {self.recorded_torch}, compared with PyTorch {self.present_torch}",
            f"op types: {summary or 'none'}",
        ]
        for op in self.ops:
            if op.changes:
                lines += [f"{op.op_type}: {op.verdict.value}", *(f"  {change}" for change in op.changes)]
        return "\n".join(lines)


def _change_to_dict(change: Change) -> dict[str, Any]:
    return {
        "kind": change.kind,
        "argument": change.argument,
        "verdict": change.verdict.value,
        "text": change.text,
        "fix": change.fix,
        "nodes": list(change.nodes),
    }
