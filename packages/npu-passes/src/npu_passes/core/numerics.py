"""Tolerances that passes promise for the results of a graph."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch

from npu_passes.errors import PassError


@dataclass(frozen=True, slots=True)
class Numerics:
    """Tolerance that a pass promises for results.

    Attributes:
        rtol: Largest difference, relative to the largest magnitude of the tensor; 0.0 if results are
            equal, with NaN equal to NaN and 0.0 to -0.0.
    """

    rtol: float = 0.0

    def __post_init__(self) -> None:
        if not (math.isfinite(self.rtol) and self.rtol >= 0):
            raise PassError(f"a tolerance is finite and not negative, not {self.rtol}")

    @property
    def is_exact(self) -> bool:
        return self.rtol == 0.0

    def allowed_difference(self, dtype: torch.dtype) -> float:
        """Return the allowed difference for a dtype, relative to the largest magnitude of the tensor.

        Exact results may not differ. Dtypes coarser than float32 are allowed 16 of their rounding units
        more, up to 0.25: layers that round differently add up to that much.
        """
        unit = torch.finfo(dtype).eps
        is_coarse = unit > torch.finfo(torch.float32).eps
        return self.rtol + min(16 * unit, 0.25) if self.rtol and is_coarse else self.rtol

    def __str__(self) -> str:
        return "exact" if self.is_exact else f"within {self.rtol:g}"


EXACT = Numerics()


def within(rtol: float) -> Numerics:
    """Return a tolerance for float32 results of ``rtol``, relative to the tensor's largest magnitude."""
    return Numerics(rtol)
