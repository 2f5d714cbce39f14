"""One value of a comparison: how far the sides are apart there, and how exact each of them is."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from npu_runtime.diagnostics.compare.metrics import Difference, Error

# A difference of up to so many times the noise floor is rounding: in its largest element, and in the mean, which is
# subject to chance less. Two ways to sum n numbers differ by the sum of their errors, which are of the same size but
# for chance; a wrong value is off by orders of magnitude.
NOISE_MULTIPLE = 8
NOISE_MULTIPLE_RMS = 4


@dataclass(frozen=True, slots=True)
class Row:
    """How two sides compare in one value.

    Attributes:
        kind: ``value`` of a node, ``result`` or ``update``.
        name: Of a value, its name on side a; of a result its path, of an update what is updated.
        counterpart: The name of the value on side b.
        op: What computes it on side a; "" where it comes from outside.
        counterpart_op: What computes it on side b.
        module: Path of the module that it is from.
        source: The user's line that it is from.
        type: Of side a.
        difference: How far b is from a.
        error_a: Distance of a from the float64 run; None where that does not know the value.
        error_b: The same of b.
        rounding: Distance from the float64 run of one with all values rounded at random; None likewise.
        problem: What differs by more than the tolerance; None where nothing does.
        is_noise: Whether the problem is not more than rounding explains (`NOISE_MULTIPLE`).
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
        """Whether the sides differ by more than the tolerance and more than rounding explains."""
        return self.problem is not None and not self.is_noise

    @property
    def noise_floor(self) -> Error | None:
        """Return the error of the better side, or of rounding where that is more: one side may be exact by chance.

        None where the float64 run does not know the value.
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
        """Whether the sides differ by more than `NOISE_MULTIPLE` times the noise floor, as far as that is known."""
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
        """What it is called in messages: ``%gelu``, ``result['loss']``, ``update of bn.running_mean``."""
        return {"value": f"%{self.name}", "update": f"update of {self.name}"}.get(self.kind, self.name)

    @property
    def place(self) -> str:
        """Module and source line."""
        return ", ".join(filter(None, (self.module, self.source)))

    def to_dict(self) -> dict[str, Any]:
        """Return the row as JSON data: numbers that JSON has none for are ``"inf"``, ``"-inf"`` and ``"nan"``."""
        plain = asdict(self)
        floor = self.noise_floor
        plain.update(plain.pop("difference"), diverges=self.diverges)
        plain["noise_floor"] = None if floor is None else asdict(floor)
        return {name: _json(item) for name, item in plain.items()}


def _json(item: Any) -> Any:
    if isinstance(item, dict):
        return {name: _json(part) for name, part in item.items()}
    return str(item) if isinstance(item, float) and not math.isfinite(item) else item
