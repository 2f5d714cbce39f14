"""Violations that the capture and replay checks find, and reports of them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from npu_runtime.errors import CaptureError


@dataclass(frozen=True, slots=True)
class Violation:
    """Something that a replay would get wrong, or a note about something unexpected.

    Attributes:
        kind: Its kind, in kebab-case: ``host-sync``, ``data-dependent-size``, ``symbolic-size``,
            ``other-device``, ``unregistered-random``, ``baked-tensor``, ``baked-number``, ``parameter-hook``,
            ``optimizer-hook``, ``accumulated-gradient``, ``allocation``, ``prepared-weight``,
            ``untraceable``; of the replay check ``frozen-number``, ``frozen-seed``, ``moved-pointer``,
            ``not-repeatable``, ``not-restored``.
        message: The problem.
        where: The node and the user's line, as far as they are known.
        fix: The remedy.
        is_note: Whether it is only a note, and the capture works.
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
    """The violations found in a step.

    Attributes:
        graph: The name of the step.
        violations: In the order of the step.
    """

    graph: str
    violations: tuple[Violation, ...]

    @property
    def errors(self) -> tuple[Violation, ...]:
        """The violations that prevent the capture."""
        return tuple(item for item in self.violations if not item.is_note)

    @property
    def notes(self) -> tuple[Violation, ...]:
        """The violations that do not prevent the capture."""
        return tuple(item for item in self.violations if item.is_note)

    @property
    def ok(self) -> bool:
        """True if the step can be captured."""
        return not self.errors

    def require(self) -> None:
        """Raise if the step cannot be captured.

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
        """Return the report as plain data."""
        return {
            "graph": self.graph,
            "ok": self.ok,
            "violations": [asdict(item) for item in self.violations],
        }

    def __str__(self) -> str:
        if not self.violations:
            return f"{self.graph}: nothing prevents a capture"
        counts = f"{len(self.errors)} errors, {len(self.notes)} notes"
        return "\n".join([f"{self.graph}: {counts}", *map(str, self.violations)])
