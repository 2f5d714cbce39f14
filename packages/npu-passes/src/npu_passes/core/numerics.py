"""How far the results of a graph may move when a pass has been over it."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from npu_passes.errors import PassError


@dataclass(frozen=True, slots=True)
class Numerics:
    """What a pass promises of results.

    Attributes:
        rtol: Largest difference in relation to the largest magnitude of the tensor; 0.0 where results are
            equal, NaN equal to NaN and 0.0 to -0.0.
    """

    rtol: float = 0.0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.rtol) and self.rtol >= 0):
            raise PassError(f"a tolerance is finite and not negative, not {self.rtol}")

    @property
    def is_exact(self) -> bool:
        return self.rtol == 0.0

    def allowed(self, dtype: torch.dtype) -> float:
        """Return what results of a dtype may differ by, in relation to the largest magnitude of the tensor.

        Results that are exact may not differ. Dtypes that are coarser than float32 may differ by 16 of their
        rounding units more, at most by a quarter: that much layers that round otherwise add up to.
        """
        unit = torch.finfo(dtype).eps
        is_coarse = unit > torch.finfo(torch.float32).eps
        return self.rtol + min(16 * unit, 0.25) if self.rtol and is_coarse else self.rtol

    def __str__(self) -> str:
        return "exact" if self.is_exact else f"within {self.rtol:g}"


EXACT = Numerics()


def within(rtol: float) -> Numerics:
    """Return the promise that float32 results differ by at most ``rtol`` of the tensor's largest magnitude."""
    return Numerics(rtol)
