"""The row of the op EltwiseRelu."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from npu_cuda.testing.case import Attrs, Case, OpRow, Refusal, TensorLayout
from npu_cuda.testing.dtypes import Array
from npu_cuda.testing.misuse import misuses
from npu_cuda.testing.rows.elementwise import elementwise_cases, elementwise_refusals

OP = "EltwiseRelu"


def reference(inputs: Sequence[Array], _: Attrs) -> list[Array]:
    return [np.where(inputs[0] < 0, 0.0, inputs[0])]


def cases() -> Iterator[Case]:
    return elementwise_cases(1)


def refusals() -> Iterator[Refusal]:
    yield from elementwise_refusals(1)
    layout = TensorLayout((8,))
    yield from misuses(OP, Case("right", (layout,), (layout,)))


RELU = OpRow("relu", OP, None, reference, cases, refusals)
