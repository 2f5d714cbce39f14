"""The rows of reductions: references by PyTorch in float64 or integers, over axes given as a mask."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from npu_cuda import _C
from npu_cuda.testing.case import Array, Attrs, Case, OpRow, Refusal, TensorLayout
from npu_cuda.testing.misuse import misuses
from npu_cuda.testing.values import FLOATS

REAL = (*FLOATS, "float64")
ANY = (*REAL, "int64", "int32", "int16", "int8", "uint8", "bool")
Reduce = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Sample:
    """The test of a reduction.

    Attributes:
        reference: Reduces the axes of a tensor.
        dtypes: Of the input.
        yields: The dtype of the output where it is not that of the input; of integers for ``whole``.
        whole: Integers give ``yields``, and real numbers their own dtype.
        is_empty: No elements have a result.
        attrs: Further attributes.
    """

    reference: Reduce
    dtypes: tuple[str, ...] = REAL
    yields: str | None = None
    whole: bool = False
    is_empty: bool = True
    attrs: Attrs | None = None

    def result_dtype(self, dtype: str) -> str:
        if self.yields is None or (self.whole and dtype in REAL):
            return dtype
        return self.yields


def _norm(order: float) -> Reduce:
    return lambda x, dim: torch.linalg.vector_norm(x, order, dim)


def _product(x: Any, dim: Sequence[int]) -> Any:
    for axis in sorted(dim, reverse=True):
        x = x.prod(axis)
    return x


def _truth(function: Reduce) -> Reduce:
    return lambda x, dim: function(x != 0, dim) if dim else x != 0


INFINITY = float("inf")
SAMPLES: Mapping[str, Sample] = {
    "ReduceSum": Sample(lambda x, dim: x.sum(dim) if dim else x, ANY, "int64", whole=True),
    "Sum": Sample(lambda x, dim: x.sum(dim), ANY, "int64", whole=True),
    "Mean": Sample(lambda x, dim: x.mean(dim)),
    "Amax": Sample(lambda x, dim: x.amax(dim), ANY, is_empty=False),
    "Amin": Sample(lambda x, dim: x.amin(dim), ANY, is_empty=False),
    "Prod": Sample(_product, ANY, "int64", whole=True),
    "Any": Sample(_truth(torch.any), ANY, "bool"),
    "All": Sample(_truth(torch.all), ANY, "bool"),
    "NormZero": Sample(_norm(0)),
    "NormOne": Sample(_norm(1)),
    "NormTwo": Sample(_norm(2)),
    "NormMax": Sample(_norm(INFINITY), is_empty=False),
    "NormMin": Sample(_norm(-INFINITY), is_empty=False),
    "NormPower": Sample(_norm(3), attrs={"power": 3.0}),
    "Var": Sample(
        lambda x, dim, correction=0.5: x.var(dim, correction=correction), attrs={"correction": 0.5}
    ),
    "Std": Sample(
        lambda x, dim, correction=0.5: x.std(dim, correction=correction), attrs={"correction": 0.5}
    ),
    "LogSumExp": Sample(lambda x, dim: x.logsumexp(dim)),
}
# Shape, strides, and the mask of the reduced axes.
LAYOUTS: Mapping[str, tuple[tuple[int, ...], tuple[int, ...] | None, int]] = {
    "rows": ((37, 70), None, 2),
    "short rows": ((300, 5), None, 2),
    "long rows": ((2, 4099), None, 2),
    "columns": ((70, 45), None, 1),
    "many columns": ((9, 1100), None, 1),
    "few columns": ((90, 3), None, 1),
    "long columns": ((1100, 16), None, 1),
    "all": ((13, 33, 7), None, 0),
    "channels": ((5, 6, 50), None, 5),
    # Of whole accesses of 16 bytes, in parts on a GPU.
    "wide rows": ((2, 4104), None, 2),
    "wide columns": ((520, 48), None, 1),
    "wide channels": ((9, 3, 520), None, 5),
    "the middle": ((6, 40, 9), None, 2),
    "transposed rows": ((20, 33), (1, 20), 2),
    "transposed columns": ((20, 33), (1, 20), 1),
    "with gaps": ((20, 33), (70, 2), 2),
    "expanded": ((6, 33), (0, 1), 1),
    "rank 8": ((2, 1, 3, 2, 1, 2, 3, 2), None, 0b10100101),
}


def _further(*layouts: str, dtype: str) -> tuple[str, ...]:
    """Return the layouts; none where another dtype, which is only read otherwise, has the same loops."""
    return layouts if dtype in (*REAL, "int64") else ()


@dataclass(frozen=True, slots=True)
class _Maker:
    name: str
    sample: Sample
    schema: str

    def case(self, name: str, x: TensorLayout, axes: int) -> Case:
        kept = [size for axis, size in enumerate(x.shape) if not self.is_reduced(x, axis, axes)]
        y = TensorLayout(tuple(kept), self.sample.result_dtype(x.dtype))
        attrs = {} if self.name == "ReduceSum" else {"axes": axes, **(self.sample.attrs or {})}
        terms = max(1, int(np.prod(x.shape)) // max(1, int(np.prod(kept))))
        return Case(f"{x.dtype}, {name}", (x,), (y,), attrs, terms=terms)

    def is_reduced(self, x: TensorLayout, axis: int, axes: int) -> bool:
        if self.name == "ReduceSum":
            return axis < len(x.shape) - 1
        return axes == 0 or bool(axes >> axis & 1)

    def cases(self) -> Iterator[Case]:
        for name, (shape, strides, axes) in LAYOUTS.items():
            yield self.case(name, TensorLayout(shape, "float32", strides), axes)
        for dtype in self.sample.dtypes[1:]:
            wide = ("wide rows", "wide columns", "wide channels") if dtype in FLOATS else ()
            for name in ("rows", "transposed rows", *_further("columns", "channels", dtype=dtype), *wide):
                shape, strides, axes = LAYOUTS[name]
                yield self.case(name, TensorLayout(shape, dtype, strides), axes)
        yield self.case("misaligned", TensorLayout((9, 64), shift=1), 2)
        yield self.case("a number", TensorLayout(()), 0)
        if self.sample.is_empty:
            yield self.case("no elements", TensorLayout((3, 0)), 2)
        yield self.case("no results", TensorLayout((0, 3)), 2)

    def refusals(self) -> Iterator[Refusal]:
        x = TensorLayout((4, 6))
        right = replace(self.case("right", x, 1), attrs=self.sample.attrs or {})
        plain = replace(right, outputs=self.case("", x, 0).outputs) if self.name != "ReduceSum" else right
        wrong = (replace(plain.outputs[0], shape=(5,)),)
        yield Refusal("another shape", (x,), wrong, "the output is [5]", plain.attrs)
        complex_x = replace(x, dtype="complex64")
        yield Refusal("complex64", (complex_x,), plain.outputs, "complex64, not", plain.attrs)
        if self.name == "ReduceSum":
            yield Refusal("another axis", (x,), plain.outputs, "axis is 1, not 0", {"axis": 1})
        else:
            yield Refusal(
                "an axis too many", (x,), plain.outputs, "bits of axes below 2",
                {"axes": 4}
            )  # fmt: skip
        if not self.sample.is_empty:
            empty = self.case("", TensorLayout((3, 0)), 2)
            yield Refusal("no elements", empty.inputs, empty.outputs, "of no elements", empty.attrs)
        if self.sample.whole:
            bools = (replace(x, dtype="bool"),)
            outputs = (replace(plain.outputs[0], dtype="bool"),)
            yield Refusal("a result of bool", bools, outputs, "no result of bool", plain.attrs)
        yield from misuses(self.name, plain)

    def reference(self, inputs: Sequence[Array], attrs: Attrs) -> list[Array]:
        x = torch.from_numpy(np.array(inputs[0]))
        mask = int(attrs.get("axes", 0))
        dim = [axis for axis in range(x.dim()) if self.is_reduced(TensorLayout(tuple(x.shape)), axis, mask)]
        return [np.asarray(self.sample.reference(x, dim).numpy())]

    def row(self) -> OpRow:
        name = re.sub(r"(?<!^)(?=[A-Z])", "_", self.name).lower()
        return OpRow(name, self.name, self.schema, self.reference, self.cases, self.refusals)


@dataclass(frozen=True, slots=True)
class _PlaceMaker:
    """Cases of argmax and argmin: one axis or all, with NaN and equal elements."""

    name: str
    reference_of: Reduce
    schema: str

    def case(self, name: str, x: TensorLayout, axes: int, *, special: bool = False) -> Case:
        shape = [size for axis, size in enumerate(x.shape) if axes != 0 and not axes >> axis & 1]
        y = TensorLayout(tuple(shape), "int64")
        return Case(f"{x.dtype}, {name}", (x,), (y,), {"axes": axes}, special=special, exact=True)

    def cases(self) -> Iterator[Case]:
        for name, (shape, strides, axes) in LAYOUTS.items():
            if axes.bit_count() == 1 or name == "all":
                yield self.case(name, TensorLayout(shape, "float32", strides), axes)
        for dtype in ANY[1:]:
            for name in ("rows", "transposed rows", *_further("columns", dtype=dtype)):
                shape, strides, axes = LAYOUTS[name]
                yield self.case(name, TensorLayout(shape, dtype, strides), axes)
        for dtype in FLOATS:
            for axes in (1, 2):
                yield self.case(f"special values {axes}", TensorLayout((40, 31), dtype), axes, special=True)
        yield self.case("a number", TensorLayout(()), 0)
        yield self.case("no results", TensorLayout((0, 3)), 2)

    def refusals(self) -> Iterator[Refusal]:
        x, y = TensorLayout((4, 6, 5)), TensorLayout((), "int64")
        transposed = replace(x, strides=(1, 4, 24))
        row = TensorLayout((5,), "int64")
        empty, three = TensorLayout((3, 0)), TensorLayout((3,), "int64")
        for name, inputs, output, axes, match in (
            ("two axes", x, row, 3, "takes one axis or all, not the bits 3"),
            ("all of a transposed tensor", transposed, y, 0, "of whose elements a place is wanted"),
            ("a result of int32", x, replace(y, dtype="int32"), 0, "the output is int32"),
            ("an axis too many", x, y, 8, "bits of axes below 3"),
            ("no elements", empty, three, 2, "of no elements"),
            ("another shape", x, row, 0, "the output is [5]"),
        ):
            yield Refusal(name, (inputs,), (output,), match, {"axes": axes})
        yield from misuses(self.name, Case("right", (x,), (y,)))

    def reference(self, inputs: Sequence[Array], attrs: Attrs) -> list[Array]:
        x, axes = torch.from_numpy(np.array(inputs[0])), int(attrs["axes"])
        dim = axes.bit_length() - 1 if axes else None
        return [np.asarray(self.reference_of(x.byte() if x.dtype is torch.bool else x, dim).numpy())]

    def row(self) -> OpRow:
        return OpRow(self.name.lower(), self.name, self.schema, self.reference, self.cases, self.refusals)


def _sums(inputs: Sequence[Array], attrs: Attrs) -> list[Array]:
    return [torch.from_numpy(np.array(inputs[0])).cumsum(int(attrs["axis"])).numpy()]


def _sum_cases() -> Iterator[Case]:
    for dtype in ANY:
        further = _further("columns", "channels", "expanded", "few columns", "long rows", dtype=dtype)
        for name in ("rows", "transposed rows", *further):
            shape, strides, axes = LAYOUTS[name]
            y = TensorLayout(shape, dtype if dtype in REAL else "int64")
            attrs = {"axis": axes.bit_length() - 1}
            yield Case(f"{dtype}, {name}", (TensorLayout(shape, dtype, strides),), (y,), attrs, terms=64)
    for shape in ((), (0,), (1,), (2050,)):
        yield Case(f"{list(shape)}", (TensorLayout(shape),), (TensorLayout(shape),), {"axis": -1}, terms=64)
    x = TensorLayout((33, 20))
    yield Case("in place", (x,), (x,), {"axis": 0}, aliases={0: 0}, terms=64)
    yield Case("to a transposed tensor", (x,), (replace(x, strides=(1, 33)),), {"axis": 0}, terms=64)


def _sum_refusals() -> Iterator[Refusal]:
    x = TensorLayout((4, 6))
    for name, y, axis, match in (
        ("an axis too many", x, 2, "axis is 2, which x of 2 axes does not have"),
        ("another shape", TensorLayout((6, 4)), 0, "y is [6, 4]"),
        ("integers of real numbers", replace(x, dtype="int64"), 0, "has no result of int64 for float32"),
    ):
        yield Refusal(name, (x,), (y,), match, {"axis": axis})
    yield from misuses("Cumsum", Case("right", (x,), (x,)))


def reduction_rows() -> tuple[OpRow, ...]:
    """Return a row for each reduction."""
    schemas = {info["name"]: info["schema"] for info in _C.ops()}
    return (
        *(_Maker(name, sample, schemas[name] or "").row() for name, sample in SAMPLES.items()),
        _PlaceMaker("Argmax", torch.argmax, schemas["Argmax"] or "").row(),
        _PlaceMaker("Argmin", torch.argmin, schemas["Argmin"] or "").row(),
        OpRow("cumsum", "Cumsum", "CSUM", _sums, _sum_cases, _sum_refusals),
    )
