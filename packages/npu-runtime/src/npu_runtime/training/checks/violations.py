"""What is wrong with a step that is to be captured: each thing with the user's line, and what to do."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any

from npu_ir import OpNode
from npu_runtime.errors import CaptureError


@dataclass(frozen=True, slots=True)
class Violation:
    """One thing that a replay would get wrong, or that may surprise.

    Attributes:
        kind: What it is, in kebab-case: ``host-sync``, ``data-dependent-size``, ``symbolic-size``, ``other-device``,
            ``unregistered-random``, ``baked-tensor``, ``baked-number``, ``parameter-hook``, ``optimizer-hook``,
            ``accumulated-gradient``, ``allocation``, ``untraceable``; of the twin ``frozen-number``, ``frozen-seed``,
            ``moved-pointer``, ``not-repeatable``, ``not-restored``.
        message: What is wrong.
        where: The node and the user's line, as far as they are known.
        fix: What to do.
        is_note: A capture works, and what is said is worth knowing.
    """

    kind: str
    message: str
    where: str
    fix: str
    is_note: bool = False

    def __str__(self) -> str:
        level = "note" if self.is_note else "error"
        return f"{level} {self.kind}: {self.message}\n  at: {self.where}\n  fix: {self.fix}"


@dataclass(frozen=True, slots=True)
class CaptureReport:
    """All that was found.

    Attributes:
        graph: The name of the step.
        violations: In the order of the step.
    """

    graph: str
    violations: tuple[Violation, ...]

    @property
    def errors(self) -> tuple[Violation, ...]:
        """What must be changed before the step can be captured."""
        return tuple(item for item in self.violations if not item.is_note)

    @property
    def notes(self) -> tuple[Violation, ...]:
        """What is worth knowing."""
        return tuple(item for item in self.violations if item.is_note)

    @property
    def ok(self) -> bool:
        """Whether the step can be captured."""
        return not self.errors

    def require(self) -> None:
        """Refuse a step that cannot be captured.

        Raises:
            CaptureError: Lists every error.
        """
        if self.ok:
            return
        listed = "\n".join(f"{item.kind}: {item.message} ({item.where})" for item in self.errors)
        raise CaptureError(
            f"{self.graph!r} cannot be captured:\n    " + listed.replace("\n", "\n    "),
            where=self.errors[0].where,
            fix=self.errors[0].fix,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "graph": self.graph,
            "ok": self.ok,
            "violations": [asdict(item) for item in self.violations],
        }

    def __str__(self) -> str:
        if not self.violations:
            return f"{self.graph}: nothing stands against a capture"
        counts = f"{len(self.errors)} errors, {len(self.notes)} notes"
        return "\n".join([f"{self.graph}: {counts}", *map(str, self.violations)])

    def with_more(self, violations: Iterable[Violation]) -> CaptureReport:
        """Return a report of this and more."""
        return CaptureReport(self.graph, (*self.violations, *violations))


def place_of_node(node: OpNode) -> str:
    """Return node, module and source line in words."""
    return ", ".join(filter(None, (f"node {node.name!r}", str(node.provenance))))
