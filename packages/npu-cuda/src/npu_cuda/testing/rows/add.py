"""The row of the op EltwiseAdd."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from npu_cuda.testing.case import Attrs, Case, OpRow, Refusal, TensorLayout
from npu_cuda.testing.dtypes import FLOATS, Array
from npu_cuda.testing.misuse import misuses
from npu_cuda.testing.rows.elementwise import elementwise_cases, elementwise_refusals

OP = "EltwiseAdd"


def reference(inputs: Sequence[Array], attrs: Attrs) -> list[Array]:
    a, b = inputs
    with np.errstate(invalid="ignore"):
        return [a + float(np.float32(attrs["alpha"])) * b]


def cases() -> Iterator[Case]:
    yield from elementwise_cases(2)
    for dtype in FLOATS:
        layout = TensorLayout((1029,), dtype)
        plain = Case("", (layout, layout), (layout,))
        for alpha in (1.0, 0.0, -1.0, 0.37, 1e-3):
            yield replace(plain, name=f"{dtype} alpha {alpha}", attrs={"alpha": alpha})
        shifted = replace(layout, shift=1)
        yield replace(
            plain, name=f"{dtype} alpha 0.37 misaligned", inputs=(shifted, layout), attrs={"alpha": 0.37}
        )
        yield replace(plain, name=f"{dtype} alpha 0.37 in place", aliases={0: 1}, attrs={"alpha": 0.37})


def refusals() -> Iterator[Refusal]:
    yield from elementwise_refusals(2)
    matrix, row, scalar = TensorLayout((4, 6)), TensorLayout((6,)), TensorLayout(())
    for name, b in (("a row", row), ("a column", TensorLayout((4, 1))), ("a scalar", scalar)):
        yield Refusal(
            f"{name} to be broadcast", (matrix, b), (matrix,), "NotImplemented", "a is [4, 6], b is"
        )
    expanded = TensorLayout((4, 6), strides=(0, 1))
    yield Refusal("an expanded input", (matrix, expanded), (matrix,), "NotImplemented", "b is not contiguous")
    yield from misuses(OP, Case("right", (row, row), (row,)))


ADD = OpRow("add", OP, "EADD", reference, cases, refusals)
