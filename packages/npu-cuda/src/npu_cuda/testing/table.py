"""The test table: one row per op. A pointwise op is a line of ``rows/elementwise.py``; any other is a module in
``rows`` and an entry here."""

from __future__ import annotations

import functools

from npu_cuda.errors import InvalidArgumentError
from npu_cuda.testing.case import OpRow
from npu_cuda.testing.rows.copy import COPY
from npu_cuda.testing.rows.elementwise import pointwise_rows
from npu_cuda.testing.rows.gemm import GEMM


@functools.cache
def rows() -> tuple[OpRow, ...]:
    return (*pointwise_rows(), GEMM, COPY)


def row_of(name: str) -> OpRow:
    """Return the row of this name, short or as in the registry.

    Raises:
        InvalidArgumentError: There is no such row.
    """
    for row in rows():
        if name in {row.name, row.op}:
            return row
    raise InvalidArgumentError(
        f"there is no op {name!r} in the table; it has {', '.join(row.name for row in rows())}"
    )
