"""Bytes that an op reads: all of its inputs, but of a table only what it looks up."""

from __future__ import annotations

from collections.abc import Sequence

# Ops that read as many elements of their first tensor as they return.
_LOOKUPS = frozenset(
    ("aten.embedding.default", "aten.gather.default", "aten.index.Tensor", "aten.index_select.default")
)


def read_bytes(op_type: str, inputs: Sequence[int], written: int) -> int:
    """Return the bytes that an op reads.

    Args:
        op_type: The op.
        inputs: The bytes of each input.
        written: Those of its outputs.
    """
    if op_type not in _LOOKUPS or not inputs:
        return sum(inputs)
    table, *others = inputs
    return min(table, written) + sum(others)
