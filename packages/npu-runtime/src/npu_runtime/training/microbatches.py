"""Microbatches for gradient accumulation: splitting a batch, and combining the results of its parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from npu_ir.core.structure import flatten, unflatten
from npu_runtime.errors import TracingError
from npu_runtime.training.tracing.unsupported import require_tensor


@dataclass(frozen=True, slots=True)
class Microbatch:
    """A microbatch.

    Attributes:
        arguments: Positional and named arguments of the model.
        share: The rows of the batch per row of the part; a mean over the part is divided by it.
    """

    arguments: Any
    share: float


def split_batch(batch: Any, count: int) -> list[Microbatch]:
    """Split a batch along the first dimension into ``count`` parts, or fewer if it has fewer rows.

    The parts are equal where ``count`` divides the rows. If not, their sizes differ by at most one row, and
    all tensors must have the same number of rows.

    Args:
        batch: Positional and named arguments. Leaves without a dimension go to every part.
        count: The number of parts.

    Raises:
        TracingError: The tensors cannot be split alike.
    """
    leaves, structure = flatten(batch)
    rows = list(dict.fromkeys(item.shape[0] for item in leaves if _has_rows(item)))
    if count == 1 or rows == [0]:
        return [Microbatch(batch, 1)]
    is_even = all(size % count == 0 for size in rows)
    if not is_even and len(rows) > 1:
        raise TracingError(
            f"tensors of {' and '.join(map(str, rows))} rows cannot be cut alike into {count} parts",
            fix=f"give them all as many rows, or multiples of accumulate={count}; "
            "what is not to be cut belongs to the model",
        )
    parts = count if is_even else min(count, rows[0])
    columns = [item.tensor_split(parts) if _has_rows(item) else (item,) * parts for item in leaves]
    shares = [parts] * parts if is_even else [rows[0] / size for size in _split_sizes(rows[0], parts)]
    return [
        Microbatch(unflatten(structure, list(part)), share)
        for part, share in zip(zip(*columns, strict=True), shares, strict=True)
    ]


def combine_results(parts: Sequence[Any], shares: Sequence[float]) -> Any:
    """Combine the results of microbatches: average scalars, concatenate the rest along the first dimension.

    Raises:
        TracingError: One of them is not a tensor.
    """
    structure = flatten(parts[0])[1]
    columns = zip(*(flatten(part)[0] for part in parts), strict=True)
    return unflatten(structure, [_combine_column(column, shares) for column in columns])


def _combine_column(column: Sequence[Any], shares: Sequence[float]) -> torch.Tensor:
    for item in column:
        require_tensor(item)
    if column[0].dim():
        return torch.cat(list(column))
    return torch.stack([item / share for item, share in zip(column, shares, strict=True)]).sum(0)


def _split_sizes(rows: int, count: int) -> list[int]:
    """Return the sizes of the parts that ``tensor_split`` makes: the larger ones first."""
    return [rows // count + (index < rows % count) for index in range(count)]


def _has_rows(item: Any) -> bool:
    return isinstance(item, torch.Tensor) and item.dim() > 0
