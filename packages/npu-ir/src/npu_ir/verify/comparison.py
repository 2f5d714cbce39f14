"""Comparison of two results: dtype and shape exactly, values within a tolerance."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

from npu_ir.core.literals import same_literal
from npu_ir.core.tensor_bytes import equal_elements, same_data, tensor_bytes
from npu_ir.ops.execution import describe

# (rtol, atol) by dtype: a few units in the last place of values around 1. Integers are exact.
_TOLERANCES = {
    torch.float64: (1e-7, 1e-7),
    torch.complex128: (1e-7, 1e-7),
    torch.float32: (1.3e-6, 1e-5),
    torch.complex64: (1.3e-6, 1e-5),
    torch.float16: (1e-3, 1e-5),
    torch.bfloat16: (1.6e-2, 1e-5),
}


@dataclass(frozen=True, slots=True)
class Comparison:
    """The comparison of one result with the expected one.

    Attributes:
        name: Path of the result, such as ``['logits']``, or the name of a buffer or value.
        problem: Description of the difference; None within the tolerance.
        max_abs: Largest absolute difference; 0.0 if all is equal, nan if it is undefined.
        max_rel: Largest difference relative to the expected value, where that is not 0.
        mismatches: Number of elements outside the tolerance.
    """

    name: str
    problem: str | None = None
    max_abs: float = 0.0
    max_rel: float = 0.0
    mismatches: int = 0

    @property
    def ok(self) -> bool:
        return self.problem is None

    def __str__(self) -> str:
        difference = "equal" if self.max_abs == 0 else f"max difference {self.max_abs:.3g}"
        return f"{self.name}: {self.problem or difference}"


def compare(
    name: str, actual: Any, expected: Any, rtol: float | None = None, atol: float | None = None
) -> Comparison:
    """Compare one result, called ``name`` in the report, with the expected one.

    Tensors must have the same dtype, shape and layout; sparse ones are compared as dense ones. Integers and
    bools must be equal; floats may differ by ``atol + rtol * |expected|``, computed in float64, with nan
    equal to nan. Anything else must be equal and of the same Python type. The tolerances are by default those
    of the dtype (float32: 1.3e-6 and 1e-5).
    """
    tensors = [item for item in (actual, expected) if isinstance(item, torch.Tensor)]
    kinds = {(item.dtype, item.shape, item.layout) for item in tensors}
    if not ((len(tensors) == 2 and len(kinds) == 1) or (not tensors and same_literal(actual, expected))):
        problem = f"got {describe(actual)}, expected {describe(expected)}"
        return Comparison(name, problem, math.nan, math.nan)
    if not tensors:
        return Comparison(name)
    if expected.layout is not torch.strided:
        actual, expected = actual.to_dense(), expected.to_dense()
    if same_data(actual, expected):  # the common case, much cheaper than float64 copies
        return Comparison(name)
    tolerances = _TOLERANCES.get(expected.dtype, (0.0, 0.0))
    rtol, atol = (
        own if given is None else given for own, given in zip(tolerances, (rtol, atol), strict=True)
    )
    if expected.is_quantized:
        actual, expected = actual.dequantize(), expected.dequantize()
    return _compare_values(name, actual, expected, rtol, atol)


def _compare_values(
    name: str, actual: torch.Tensor, expected: torch.Tensor, rtol: float, atol: float
) -> Comparison:
    if actual.numel() == 0:
        return Comparison(name)
    is_float = expected.is_floating_point() or expected.is_complex()
    if not is_float or expected.dtype == torch.float4_e2m1fn_x2:
        got, want = (tensor_bytes(item).view(-1, item.itemsize) for item in (actual, expected))
        wrong = int((got != want).any(1).sum())
        problem = f"{wrong} of {actual.numel()} elements differ"
        return Comparison(name, problem, math.nan, math.nan, wrong) if wrong else Comparison(name)
    wide = torch.complex128 if expected.is_complex() else torch.float64
    got, want = actual.detach().to(wide), expected.detach().to(wide)
    same = equal_elements(got, want)
    difference = torch.where(same, 0.0, (got - want).abs())
    # An infinite |expected| would allow anything.
    allowed = same | (want.isfinite() & (difference <= atol + rtol * want.abs()))
    wrong = int((~allowed).sum())
    max_abs = float(difference.max())
    relative = torch.where(same | (want == 0), 0.0, difference / want.abs())
    max_rel = float(relative.max())
    if not wrong:
        return Comparison(name, None, max_abs, max_rel)
    problem = (
        f"{wrong} of {actual.numel()} elements differ by more than {atol:g} + {rtol:g} * |expected|: "
        f"max difference {max_abs:.3g} absolute, {max_rel:.3g} relative"
    )
    return Comparison(name, problem, max_abs, max_rel, wrong)
