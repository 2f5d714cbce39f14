"""The default dtype for running a graph: always float32, whatever the global torch state."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch


@contextlib.contextmanager
def float32_by_default() -> Iterator[None]:
    """Set the default dtype to float32 inside of the context; torch's default is global to all threads."""
    before = torch.get_default_dtype()
    if before is torch.float32:
        yield
        return
    torch.set_default_dtype(torch.float32)
    try:
        yield
    finally:
        torch.set_default_dtype(before)
