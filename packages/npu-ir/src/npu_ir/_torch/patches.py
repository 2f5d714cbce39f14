"""Replacements of attributes in PyTorch's objects for a block, undone at its end."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any


@contextlib.contextmanager
def set_attributes(*changes: tuple[Any, str, Any]) -> Iterator[None]:
    """Set attributes of objects, each given with its name and value, for a block of one thread at a time."""
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in changes]
    try:
        for change in changes:
            setattr(*change)
        yield
    finally:
        for change in before:
            setattr(*change)


class SharedPatch(contextlib.AbstractContextManager[None]):
    """A replacement of an attribute for blocks of any number of threads: the last one to end undoes it.

    Args:
        owner: The object.
        name: The attribute.
        replace: Returns the replacement of its value.
    """

    def __init__(self, owner: Any, name: str, replace: Callable[[Any], Any]) -> None:
        self._owner, self._name, self._replace = owner, name, replace
        self._lock = threading.Lock()
        self._blocks = 0
        self._before: Any = None

    def __enter__(self) -> None:
        with self._lock:
            if self._blocks == 0:
                self._before = getattr(self._owner, self._name)
                setattr(self._owner, self._name, self._replace(self._before))
            self._blocks += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._blocks -= 1
            if self._blocks == 0:
                setattr(self._owner, self._name, self._before)
