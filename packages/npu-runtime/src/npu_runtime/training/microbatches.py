"""A batch in parts, whose gradients are averaged: what they are cut into, and how their results are put together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from npu_ir.core.structure import flatten, unflatten
from npu_runtime.errors import TracingError
from npu_runtime.training.tracing.unsupported import require_tensor


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a batch.

    Attributes:
        arguments: Of the model, positional and named.
        share: How many such parts would make up the batch; what a mean over the part is divided by.
    """

    arguments: Any
    share: float


def parts_of(batch: Any, count: int) -> list[Part]:
    """Return a batch in parts along the first dimension of its tensors; in fewer than ``count`` if it has fewer rows.

    The parts are equal where they can be. If not, they differ by one row, and all tensors must have as many rows.

    Args:
        batch: Positional and named arguments. What has no dimension goes to every part.
        count: How many parts.

    Raises:
        TracingError: The tensors cannot be cut alike.
    """
    leaves, structure = flatten(batch)
    rows = list(dict.fromkeys(item.shape[0] for item in leaves if _has_rows(item)))
    if count == 1 or rows == [0]:
        return [Part(batch, 1)]
    is_even = all(size % count == 0 for size in rows)
    if not is_even and len(rows) > 1:
        raise TracingError(
            f"tensors of {' and '.join(map(str, rows))} rows cannot be cut alike into {count} parts",
            fix=f"give them all as many rows, or multiples of accumulate={count}; what is not to be cut belongs to the model",
        )
    kept = count if is_even else min(count, rows[0])
    columns = [item.tensor_split(kept) if _has_rows(item) else (item,) * kept for item in leaves]
    sizes = [kept] * kept if is_even else [rows[0] / size for size in _sizes(rows[0], kept)]
    return [
        Part(unflatten(structure, list(part)), share)
        for part, share in zip(zip(*columns, strict=True), sizes, strict=True)
    ]


def joined(parts: Sequence[Any], shares: Sequence[float]) -> Any:
    """Return the results of the parts of a batch as one: numbers averaged, rows behind each other.

    Raises:
        TracingError: One of them is not a tensor.
    """
    structure = flatten(parts[0])[1]
    columns = zip(*(flatten(part)[0] for part in parts), strict=True)
    return unflatten(structure, [_joined(column, shares) for column in columns])


def _joined(column: Sequence[Any], shares: Sequence[float]) -> torch.Tensor:
    for item in column:
        require_tensor(item)
    if column[0].dim():
        return torch.cat(list(column))
    return torch.stack([item / share for item, share in zip(column, shares, strict=True)]).sum(0)


def _sizes(rows: int, count: int) -> list[int]:
    """Return the sizes that ``tensor_split`` cuts into: the larger ones first."""
    return [rows // count + (index < rows % count) for index in range(count)]


def _has_rows(item: Any) -> bool:
    return isinstance(item, torch.Tensor) and item.dim() > 0
