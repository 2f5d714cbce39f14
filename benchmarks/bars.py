"""What is to be reached, and whether it is."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import geometric_mean


@dataclass(frozen=True, slots=True)
class Bar:
    """Something to reach.

    Attributes:
        text: What.
        limit: How much it may be at most.
        values: What was measured, by case.
        is_mean: Whether the geometric mean counts, and not the largest.
        lacking: Cases in which something that it takes could not be measured.
    """

    text: str
    limit: float
    values: dict[str, float]
    is_mean: bool = False
    lacking: tuple[str, ...] = ()

    @property
    def value(self) -> float | None:
        if not self.values:
            return None
        return geometric_mean(self.values.values()) if self.is_mean else max(self.values.values())

    @property
    def verdict(self) -> str:
        if self.value is not None and self.value > self.limit:
            return "missed"
        return "not measured" if self.value is None or self.lacking else "met"

    @property
    def missed(self) -> list[str]:
        """The cases that stand in the way, and by how much."""
        if not self.values:
            return []
        over = [f"{case} {value:.3g}" for case, value in self.values.items() if value > self.limit]
        return ([] if self.is_mean else over) + [f"{case} not measured" for case in self.lacking]
