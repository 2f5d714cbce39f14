"""Memory that was freed, given back to the system."""

from __future__ import annotations

import ctypes
import functools
import sys
from collections.abc import Callable, Mapping
from typing import Any

import torch

from npu_ir import Value

_LEAST_BYTES = 16 << 20  # of what a prologue has made


def release_after_prologue(values: Mapping[Value, Any]) -> None:
    """Give back what a prologue has used meanwhile, if it has made much; ``values``: what calls read.

    The C library keeps freed memory below what is still in use: of weights of 8 bits made of float32, about
    as much as they take.
    """
    made = [item for value, item in values.items() if value.producer is not None]
    dense = [item for item in made if isinstance(item, torch.Tensor) and item.layout is torch.strided]
    if sum(item.nbytes for item in dense) >= _LEAST_BYTES:
        _trim()(0)


@functools.cache
def _trim() -> Callable[[int], int]:
    """Return ``malloc_trim`` of the GNU C library; what does nothing where there is another one."""
    library = ctypes.CDLL(None) if sys.platform == "linux" else None
    trim: Callable[[int], int] = getattr(library, "malloc_trim", lambda _: 0)
    return trim
