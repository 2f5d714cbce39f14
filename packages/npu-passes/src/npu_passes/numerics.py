"""How far the results of a graph may move when a pass has been over it."""

from __future__ import annotations

import math
from dataclasses import dataclass

from npu_passes.errors import PassError


@dataclass(frozen=True, slots=True)
class Numerics:
    """What a pass promises of results.

    Attributes:
        rtol: Largest difference in relation to the largest magnitude of the tensor; 0.0 where results are
            equal, NaN equal to NaN and 0.0 to -0.0. Half precision gets the same multiple of its own
            rounding unit as float32.
    """

    rtol: float = 0.0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.rtol) and self.rtol >= 0):
            raise PassError(f"a tolerance is finite and not negative, not {self.rtol}")

    @property
    def is_exact(self) -> bool:
        return self.rtol == 0.0

    def __str__(self) -> str:
        return "exact" if self.is_exact else f"within {self.rtol:g}"


EXACT = Numerics()


def within(rtol: float) -> Numerics:
    """Return the promise that float32 results differ by at most ``rtol`` of the tensor's largest magnitude."""
    return Numerics(rtol)
