"""A row of a comparison: the difference of the sides in one value, and the error of each."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

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
