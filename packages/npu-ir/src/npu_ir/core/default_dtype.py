"""The default dtype that a graph runs under: always float32, whatever the process has set."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch


@contextlib.contextmanager
def float32_by_default() -> Iterator[None]:
    """Make new floating-point tensors float32 where no dtype is given; it is set for all threads."""
    before = torch.get_default_dtype()
    if before is torch.float32:
        yield
        return
    torch.set_default_dtype(torch.float32)
    try:
        yield
    finally:
        torch.set_default_dtype(before)
