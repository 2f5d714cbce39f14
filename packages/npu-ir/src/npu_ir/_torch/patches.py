"""Replacements of attributes in PyTorch's objects for a block, undone at its end."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def set_attributes(*changes: tuple[Any, str, Any]) -> Iterator[None]:
    """Set attributes of objects, each given with its name and value, for the block."""
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in changes]
    try:
        for change in changes:
            setattr(*change)
        yield
    finally:
        for change in before:
            setattr(*change)
