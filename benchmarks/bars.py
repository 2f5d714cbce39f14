"""Target values and whether they are reached, for the terminal; the pages show measurements only."""

from __future__ import annotations

from collections.abc import Iterable
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
        over = [
            f"{case} {value_text(value, self.limit)}"
            for case, value in self.values.items()
            if value > self.limit
        ]
        return ([] if self.is_mean else over) + [f"{case} not measured" for case in self.lacking]


def value_text(value: float, limit: float) -> str:
    """Return a value with three digits, or with as many as tell it from the limit."""
    for digits in range(3, 17):
        text = f"{value:.{digits}g}"
        if float(text) != limit or value == limit:
            return text
    return repr(value)


def print_bars(bars: Iterable[Bar]) -> None:
    """Print the targets that are met and missed, with the cases."""
    for bar in bars:
        value = "" if bar.value is None else f"{value_text(bar.value, bar.limit)}, "
        print(f"  {bar.verdict:<12}  {bar.text}: {value}at most {bar.limit:g}")
        for case in bar.missed:
            print(f"                  {case}")
