"""Tolerances of results, relative to the reference."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt

import numpy as np

from npu_cuda.testing.case import Array, Case
from npu_cuda.testing.values import FLOATS, decode, encode, storage_of

# Of the whole tensor (Frobenius norm of the difference over that of the reference), and of an element.
RELATIVE = {"float64": 1e-12, "float32": 1e-5, "float16": 2e-3, "bfloat16": 1e-2}
ABSOLUTE = {"float64": 1e-12, "float32": 1e-5, "float16": 1e-2, "bfloat16": 1e-1}
MOST_RELATIVE_FLOAT32 = 1e-4


@dataclass(frozen=True, slots=True)
class Tolerance:
    """Limits of the error; zeros require values equal to the bit, except for NaN."""

    relative: float = 0.0
    absolute: float = 0.0


def tolerance_of(case: Case, dtype: str) -> Tolerance:
    if case.exact or dtype not in RELATIVE:
        return Tolerance()
    # Sums of 16-bit floats are float32: only the result is rounded.
    growth = sqrt(max(1, case.terms)) if dtype in ("float32", "float64") else 1.0
    relative = RELATIVE[dtype] * growth
    if dtype == "float32":
        relative = min(relative, MOST_RELATIVE_FLOAT32)
    return Tolerance(relative, ABSOLUTE[dtype] * growth)


def error_of(actual: Array, expected: Array, dtype: str, tolerance: Tolerance) -> tuple[float, str]:
    """Return the relative error, and a description if it is too large (else "").

    Args:
        actual: Elements as stored.
        expected: Values.
        dtype: Dtype of both.
        tolerance: The limits.
    """
    wanted = encode(expected, dtype)
    if tolerance == Tolerance():
        return _exact_error(actual, wanted, dtype)
    got, want = decode(actual, dtype), decode(wanted, dtype)
    if not (np.isfinite(got).all() and np.isfinite(want).all()):
        if not np.array_equal(np.isnan(got), np.isnan(want)):
            count = int(np.sum(np.isnan(got) != np.isnan(want)))
            return float("inf"), f"{count} elements are NaN on one side only"
        got, want = np.nan_to_num(got), np.nan_to_num(want)
    difference = np.abs(got - want)
    with np.errstate(over="ignore"):
        size = float(np.linalg.norm(want.ravel()))
        error = float(np.linalg.norm(difference.ravel())) / (size or 1.0)
    if error > tolerance.relative:
        return error, f"the relative error is {error:.2e}, more than {tolerance.relative:.2e}"
    limit = tolerance.absolute * np.maximum(1.0, np.abs(want))
    if np.any(difference > limit):
        return (
            error,
            f"an element is off by {float(difference.max()):.2e}, more than {tolerance.absolute:.2e}",
        )
    return error, ""


def _exact_error(actual: Array, wanted: Array, dtype: str) -> tuple[float, str]:
    same = actual == wanted
    if dtype in FLOATS:
        got, want = decode(actual, dtype), decode(wanted, dtype)
        same = ((got == want) & (np.signbit(got) == np.signbit(want))) | (np.isnan(got) & np.isnan(want))
    elif storage_of(dtype).kind == "c":
        same = same | (np.isnan(actual) & np.isnan(wanted))
    if np.all(same):
        return 0.0, ""
    place = tuple(int(i) for i in np.argwhere(~same)[0])
    got_item, want_item = decode(actual, dtype)[place], decode(wanted, dtype)[place]
    return float(
        "inf"
    ), f"{int(np.sum(~same))} elements differ, the first at {list(place)}: {got_item}, not {want_item}"
