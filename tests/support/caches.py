"""Models that keep a cache, and overwrite rows of it in each call."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn, randn

Write = Callable[[Tensor, Tensor, Tensor], Any]


def _put_rows(cache: Tensor, at: Tensor, rows: Tensor) -> None:
    cache[:, at] = rows


def _put_pairs(cache: Tensor, at: Tensor, rows: Tensor) -> None:
    cache[at % 2, at] = rows[0]


def _put_twice(cache: Tensor, at: Tensor, rows: Tensor) -> None:
    cache.index_copy_(1, at, rows)
    cache.index_copy_(1, (at + 1) % cache.shape[1], -rows)


def _put_slice(cache: Tensor, at: Tensor, rows: Tensor) -> None:
    cache[:, 1:5:2] = rows


def _put_selected(cache: Tensor, at: Tensor, rows: Tensor) -> None:
    cache[:, 3] = rows[:, 0]


# Each overwrites a part of a cache of [2, 6, 4] by rows of [2, 2, 4], at two positions.
WRITES: dict[str, Write] = {
    "index_copy": lambda cache, at, rows: cache.index_copy_(1, at, rows),
    "index_put": _put_rows,
    "index_put-pairs": _put_pairs,
    "index_copy-twice": _put_twice,
    "slice": _put_slice,
    "select": _put_selected,
}


class Cached(nn.Module):
    """Writes rows into a cache, reads all of it, and then rows of a table, which may fail."""

    cache: Tensor
    table: Tensor

    def __init__(self, write: Write, rows: int = 6) -> None:
        super().__init__()
        self.write = write
        self.register_buffer("cache", randn(2, rows, 4))
        self.register_buffer("table", randn(3, 4))

    def forward(self, x: Tensor, at: Tensor, last: Tensor) -> Tensor:
        self.write(self.cache, at, x.relu())
        return self.cache.sum(1) + self.table.index_select(0, last)


def batch(at: tuple[int, int] = (1, 0), last: int = 1) -> tuple[Tensor, Tensor, Tensor]:
    """Return rows, positions, and a place of the table, of which there are three."""
    return randn(2, 2, 4), torch.tensor(at), torch.tensor([last])
