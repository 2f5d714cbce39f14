"""Verdicts of a comparison: types and NaN patterns must agree, numbers up to tolerance or rounding."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch

from npu_ir import TensorType
from npu_ir.ops.execution import describe
from npu_ir.verify import compare as compare_values
from npu_runtime.diagnostics.compare.comparison import NOISE_MULTIPLE, NOISE_MULTIPLE_RMS, Row
from npu_runtime.diagnostics.compare.float64_run import Missing
from npu_runtime.diagnostics.compare.metrics import UNKNOWN, measure, measure_error, to_dense, ulp_distance


@dataclass(frozen=True, slots=True)
class SideValue:
    """A value that a side computed.

    Attributes:
        item: A tensor or number.
        type: Its type; None unless it is a tensor.
        exact: Whether the side computes in float64 whatever the graph declares.
        strided: Whether the strides are those of the side, and not of a copy.
    """

    item: Any
    type: TensorType | None
    exact: bool = False
    strided: bool = True

    @classmethod
    def from_item(cls, item: Any, *, exact: bool = False, strided: bool = True) -> SideValue:
        if not isinstance(item, torch.Tensor):
            return cls(item, None, exact, strided)
        return cls(item.detach(), TensorType.of(item), exact, strided)


@dataclass(frozen=True, slots=True)
class Reference:
    """A value of the float64 runs, or `Missing`: exact, and rounded to the dtypes of the graph."""

    exact: Any
    rounded: Any


@dataclass(frozen=True, slots=True)
class Judge:
    """The tolerances of a comparison, None for those of each dtype, and the verdict on two values."""

    rtol: float | None
    atol: float | None

    def judge(self, row: Row, a: SideValue, b: SideValue, reference: Reference, *, same_strides: bool) -> Row:
        """Return ``row`` with the difference, the errors, and the problem if the values diverge.

        With ``same_strides``, both graphs declare the same ones, so both sides should have them.
        """
        unrounded = b.item, a.item
        a, b = _unify_dtypes(a, b)
        problem = _type_problem(a, b, same_strides=same_strides)
        if problem is not None:
            return replace(row, difference=UNKNOWN, problem=problem)
        difference = replace(measure(*unrounded), ulp=ulp_distance(b.item, a.item))
        row = replace(row, difference=difference)
        if not isinstance(reference.exact, Missing):
            items = (a.item, b.item, reference.rounded)
            errors = [measure_error(item, reference.exact) for item in items]
            row = replace(row, error_a=errors[0], error_b=errors[1], rounding=errors[2])
        if difference.unlike:
            unlike = (
                f"{difference.unlike} of {difference.count} elements are NaN or infinite on one side only"
            )
            return replace(row, problem=unlike)
        verdict = compare_values(row.name, to_dense(b.item), to_dense(a.item), self.rtol, self.atol)
        if verdict.ok:
            return row
        return replace(row, problem=verdict.problem, is_noise=self._is_noise(row, a, b))

    def _is_noise(self, row: Row, a: SideValue, b: SideValue) -> bool:
        """Return whether rounding explains the difference, in each element and in the mean."""
        floor = row.noise_floor
        if floor is None or not floor.max or not _is_float(a.item):
            return False
        if row.difference.rms > NOISE_MULTIPLE_RMS * floor.rms:
            return False
        return compare_values(
            row.name, to_dense(b.item), to_dense(a.item), self.rtol, NOISE_MULTIPLE * floor.max
        ).ok


def _unify_dtypes(a: SideValue, b: SideValue) -> tuple[SideValue, SideValue]:
    """Round a value computed in float64 to the dtype of the other side, unless both are exact."""
    if a.exact == b.exact or a.type is None or b.type is None:
        return a, b
    exact, other = (a, b) if a.exact else (b, a)
    if _is_float(exact.item) and _is_float(other.item) and other.item.dtype != exact.item.dtype:
        assert exact.type is not None, "tensors have types"
        dtype = other.item.dtype
        exact = replace(exact, item=exact.item.to(dtype), type=replace(exact.type, dtype=dtype))
    return (exact, other) if a.exact else (other, exact)


def _is_float(item: Any) -> bool:
    return isinstance(item, torch.Tensor) and (item.is_floating_point() or item.is_complex())


def _type_problem(a: SideValue, b: SideValue, *, same_strides: bool) -> str | None:
    if a.type is None or b.type is None:
        is_alike = type(a.item) is type(b.item) or (a.exact != b.exact and a.type is b.type is None)
        return None if is_alike else f"b gave {describe(b.item)}, a {describe(a.item)}"
    if not a.type.same_shape_and_dtype(b.type):
        return f"b gave {b.type}, a {a.type}"
    is_comparable = same_strides and a.strided and b.strided and a.type.layout is torch.strided
    if is_comparable and _significant_strides(a.type) != _significant_strides(b.type):
        return f"b gave strides {list(b.type.static_strides)}, a {list(a.type.static_strides)}"
    return None


def _significant_strides(type: TensorType) -> list[int]:
    """Return the strides of dimensions larger than 1; others, and those of empty tensors, are arbitrary."""
    return (
        [stride for size, stride in zip(type.static_shape, type.static_strides, strict=True) if size > 1]
        if type.numel
        else []
    )
