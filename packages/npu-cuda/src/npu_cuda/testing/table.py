"""The test table: one row per op.

A pointwise op is a line of ``rows/elementwise.py``, a reduction one of ``rows/reductions.py``; any other is a
module in ``rows`` and an entry here.
"""

from __future__ import annotations

import functools

from npu_cuda.errors import InvalidArgumentError
from npu_cuda.testing.case import OpRow
from npu_cuda.testing.rows.attention import ATTENTION_ROWS
from npu_cuda.testing.rows.batch_norm import BATCH_NORMS
from npu_cuda.testing.rows.conv import CONV_ROWS
from npu_cuda.testing.rows.copy import COPY
from npu_cuda.testing.rows.fused import FUSED
from npu_cuda.testing.rows.gemm import GEMM
from npu_cuda.testing.rows.index import INDEX_ROWS
from npu_cuda.testing.rows.losses import LOSSES
from npu_cuda.testing.rows.packed_conv import PACKED_CONV
from npu_cuda.testing.rows.pools import POOL_ROWS
from npu_cuda.testing.rows.products import PRODUCT_ROWS
from npu_cuda.testing.rows.quantized import DYNAMIC, QUANTIZED
from npu_cuda.testing.rows.random import RANDOM_ROWS
from npu_cuda.testing.rows.recurrent import RECURRENT
from npu_cuda.testing.rows.rotary import ROTARY
from npu_cuda.testing.rows.row_ops import ROW_OPS

NUMPY_ROWS = (
    *(GEMM, *PRODUCT_ROWS, COPY, FUSED, *BATCH_NORMS, *ROW_OPS, *LOSSES, *INDEX_ROWS, *RANDOM_ROWS),
    *(*CONV_ROWS, PACKED_CONV, *ATTENTION_ROWS, *POOL_ROWS, QUANTIZED, DYNAMIC, RECURRENT, ROTARY),
)


@functools.cache
def rows() -> tuple[OpRow, ...]:
    """Return all rows. The references of pointwise ops and reductions are PyTorch's; the others need none."""
    from npu_cuda.testing.rows.elementwise import pointwise_rows
    from npu_cuda.testing.rows.lists import list_rows
    from npu_cuda.testing.rows.reductions import reduction_rows

    return (*pointwise_rows(), *list_rows(), *reduction_rows(), *NUMPY_ROWS)


def row_of(name: str) -> OpRow:
    """Return the row of this name, short or as in the registry.

    Raises:
        InvalidArgumentError: There is no such row.
    """
    found = [row for row in NUMPY_ROWS if name in {row.name, row.op}]
    found = found or [row for row in rows() if name in {row.name, row.op}]
    if found:
        return found[0]
    raise InvalidArgumentError(
        f"there is no op {name!r} in the table; it has {', '.join(row.name for row in rows())}"
    )
