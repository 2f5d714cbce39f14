"""The result of a comparison: a row for each value, the verdict, and its text."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from npu_ir.cli.console import Table
from npu_ir.cli.quantities import count_text
from npu_runtime.diagnostics.compare.metrics import Difference, Error

# A difference of up to this multiple of the noise floor counts as rounding: in its largest element, and in
# the mean (RMS), which varies less by chance. Two ways to sum n numbers differ by the sum of their errors,
# which are of similar size; a wrong value is off by orders of magnitude.
NOISE_MULTIPLE = 8
NOISE_MULTIPLE_RMS = 4


@dataclass(frozen=True, slots=True)
class Row:
    """The comparison of two sides in one value.

    Attributes:
        kind: ``value`` of a node, ``result`` or ``update``.
        name: The name of a value on side a, the path of a result, or the name of the tensor that is updated.
        counterpart: The name of the value on side b.
        op: The op that computes it on side a; "" for an argument of the graph.
        counterpart_op: The op that computes it on side b.
        module: Path of its module.
        source: The user's line.
        type: Its type on side a.
        difference: The difference of b from a.
        error_a: The error of a against the float64 run; None if that does not have the value.
        error_b: The same for b.
        rounding: The error of a float64 run with all values rounded at random; None likewise.
        problem: The difference beyond the tolerance; None without one.
        is_noise: Whether rounding explains the problem (`NOISE_MULTIPLE`).
    """

    kind: str
    name: str
    counterpart: str
    op: str
    counterpart_op: str
    module: str
    source: str
    type: str
    difference: Difference
    error_a: Error | None = None
    error_b: Error | None = None
    rounding: Error | None = None
    problem: str | None = None
    is_noise: bool = False

    @property
    def diverges(self) -> bool:
        """True if the sides differ by more than the tolerance and more than rounding explains."""
        return self.problem is not None and not self.is_noise

    @property
    def noise_floor(self) -> Error | None:
        """The error of the better side, or of rounding if that is larger: one side may be exact by chance.

        None if the float64 run does not have the value.
        """
        if self.error_a is None or self.error_b is None:
            return None
        rounding = self.rounding or Error(0.0, 0.0)
        return Error(
            max(min(self.error_a.max, self.error_b.max), rounding.max),
            max(min(self.error_a.rms, self.error_b.rms), rounding.rms),
        )

    @property
    def is_beyond_rounding(self) -> bool:
        """True if it diverges, or the difference exceeds the known noise floor `NOISE_MULTIPLE` times."""
        floor = self.noise_floor
        return self.diverges or (
            floor is not None
            and (
                self.difference.max_abs > NOISE_MULTIPLE * floor.max
                or self.difference.rms > NOISE_MULTIPLE_RMS * floor.rms
            )
        )

    @property
    def title(self) -> str:
        """Its name in messages: ``%gelu``, ``result['loss']``, ``update of bn.running_mean``."""
        return {"value": f"%{self.name}", "update": f"update of {self.name}"}.get(self.kind, self.name)

    @property
    def location(self) -> str:
        """Its location: module and source line."""
        return ", ".join(filter(None, (self.module, self.source)))

    def to_dict(self) -> dict[str, Any]:
        """Return the row as JSON data, with non-finite numbers as ``"inf"``, ``"-inf"`` and ``"nan"``."""
        plain = asdict(self)
        floor = self.noise_floor
        plain.update(plain.pop("difference"), diverges=self.diverges)
        plain["noise_floor"] = None if floor is None else asdict(floor)
        return {name: _json(item) for name, item in plain.items()}


def _json(item: Any) -> Any:
    if isinstance(item, dict):
        return {name: _json(part) for name, part in item.items()}
    return str(item) if isinstance(item, float) and not math.isfinite(item) else item


_MAX_ROWS = 10
_KINDS = ("value", "result", "update")
_COLUMNS = ("value", "op", "type", "ULP", "abs", "rel", "SNR dB", "noise floor", "")


@dataclass(frozen=True, slots=True)
class Comparison:
    """The result of a comparison.

    Attributes:
        a: A description of side a.
        b: A description of side b.
        rows: One per comparison: aligned values in the order of the graph, then results and updates.
        values_a: The number of values that the nodes of side a compute.
        values_b: The same for side b.
        notes: Notes for the reader: values that the float64 run lacks, with reasons.
        repro: The folder with the one-node reproduction; None if none was written.
    """

    a: str
    b: str
    rows: tuple[Row, ...]
    values_a: int
    values_b: int
    notes: tuple[str, ...] = ()
    repro: Path | None = None

    @property
    def ok(self) -> bool:
        """True if no row diverges."""
        return self.first_divergence is None

    @property
    def first_divergence(self) -> Row | None:
        """The first row that diverges, in the order of the graph; None if there is none."""
        return next((row for row in self.rows if row.diverges), None)

    @property
    def first_beyond_rounding(self) -> Row | None:
        """The first value that differs by more than rounding explains, within the tolerance or not."""
        return next((row for row in self.values if row.is_beyond_rounding), None)

    @property
    def values(self) -> tuple[Row, ...]:
        """The rows of values that nodes compute on both sides."""
        return tuple(row for row in self.rows if row.kind == "value")

    def __str__(self) -> str:
        return "\n".join(map(str, self.parts()))

    def parts(self) -> list[str | Table]:
        """Return the report as lines and a table."""
        lines: list[str | Table] = [f"a: {self.a}", f"b: {self.b}", *self._verdict()]
        worst = _worst_rows(self.rows)
        if worst:
            lines.append(Table(_COLUMNS, [_cells(row) for row in worst]))
        lines.append(
            f"{count_text(len({row.name for row in self.values}), 'value')} aligned, "
            f"of {self.values_a:,} of a and {self.values_b:,} of b"
        )
        lines += self.notes
        if self.repro is not None:
            lines.append(f"shown by {self.repro / 'repro.py'}")
        return lines

    def _verdict(self) -> list[str]:
        noise = sum(row.is_noise for row in self.rows)
        excused = [
            f"{count_text(noise, 'difference')} beyond the tolerance not blamed: rounding explains them"
        ]
        first = self.first_divergence
        if first is None:
            return [f"a and b agree: {_counts_text(self.rows)}", *(excused if noise else [])]
        found = [f"a and b differ in {_divergence_text(self.rows)}"]
        found += [f"first divergence: {first.title}{_location_text(first)}", f"  {first.problem}"]
        if first.noise_floor is not None:
            rounding = (
                f"up to {NOISE_MULTIPLE} times that, and {NOISE_MULTIPLE_RMS} times in the mean, is rounding"
            )
            found.append(f"  noise floor {first.noise_floor.max:.3g}; {rounding}")
        earlier = self.first_beyond_rounding
        if earlier is not None and earlier is not first and self.rows.index(earlier) < self.rows.index(first):
            apart = f"max difference {earlier.difference.max_abs:.3g}"
            found.append(
                "  within the tolerance, but beyond rounding, before: "
                f"{earlier.title}{_location_text(earlier)}: {apart}"
            )
        return [*found, *(excused if noise else [])]

    def to_dict(self) -> dict[str, Any]:
        """Return the comparison as JSON data."""
        first = self.first_divergence
        return {
            "a": self.a,
            "b": self.b,
            "ok": self.ok,
            "first_divergence": None if first is None else first.to_dict(),
            "values_a": self.values_a,
            "values_b": self.values_b,
            "noise_multiple": {"max": NOISE_MULTIPLE, "rms": NOISE_MULTIPLE_RMS},
            "rows": [row.to_dict() for row in self.rows],
            "notes": list(self.notes),
            "repro": None if self.repro is None else str(self.repro),
        }


def _counts_text(rows: Sequence[Row]) -> str:
    return ", ".join(count_text(sum(row.kind == kind for row in rows), kind) for kind in _KINDS)


def _divergence_text(rows: Sequence[Row]) -> str:
    """Return the shares of diverging rows by kind as text; kinds without rows are left out."""
    of_kinds = ((kind, [row.diverges for row in rows if row.kind == kind]) for kind in _KINDS)
    return ", ".join(f"{sum(found):,} of {count_text(len(found), kind)}" for kind, found in of_kinds if found)


def _location_text(row: Row) -> str:
    """Return the ops and the location of a row, as the end of a line."""
    text = f", {row.op}" if row.op else ""
    if (row.counterpart, row.counterpart_op) != (row.name, row.op) and row.kind == "value":
        text += f" (b: %{row.counterpart}, {row.counterpart_op})"
    return text + (f", in {row.location}" if row.location else "")


def _worst_rows(rows: Sequence[Row]) -> list[Row]:
    """Return the rows to show, the worst first: divergences, then differences by rounding, then the rest."""

    def rank(row: Row) -> tuple[bool, bool, float]:
        signal = row.difference.snr_db
        return (not row.diverges, row.problem is None, -math.inf if math.isnan(signal) else signal)

    return sorted((row for row in rows if row.problem or row.difference.max_abs), key=rank)[:_MAX_ROWS]


def _cells(row: Row) -> tuple[str, ...]:
    difference = row.difference
    state = "differs" if row.diverges else "rounding" if row.is_noise else ""
    floor = "" if row.noise_floor is None else f"{row.noise_floor.max:.2g}"
    ulp = "" if difference.ulp is None else f"{difference.ulp:,}"
    numbers = (f"{difference.max_abs:.2g}", f"{difference.max_rel:.2g}", f"{difference.snr_db:.1f}")
    return (row.title, row.op, row.type, ulp, *numbers, floor, state)
