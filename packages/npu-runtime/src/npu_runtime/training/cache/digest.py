"""`Digest`: the digest of plain data and containers, in the order in which they are added."""

from __future__ import annotations

import abc
import collections
import contextlib
import hashlib
import reprlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch

from npu_runtime.training.cache.known_code import (
    CLASS_CREATION,
    CONSTRUCTION,
    DYNAMIC_NAMES,
    names_used_by_pytorch,
)
from npu_runtime.training.cache.members import Members

BY_REPR = (
    *(type(None), bool, int, str, bytes, complex, range, slice, type(Ellipsis), type(NotImplemented)),
    *(torch.dtype, torch.device, torch.layout, torch.memory_format, torch.Size),
)
# What has the same hash in each process.
_ORDERED = (bool, int, float, complex)


class UnknownContentError(Exception):
    """Something that a step depends on cannot be described by content with certainty."""


class Digest(abc.ABC):
    """A digest, and where it is in the objects that are added to it."""

    def __init__(self) -> None:
        self._sha = hashlib.sha256()
        self._numbers: dict[int, int] = {}  # of what was added
        self._owners: dict[int, int] = {}
        self._alive: list[Any] = []  # an address is a name only as long as its object lives
        self._path: list[str] = []
        self._members = Members()
        self._members.use(names_used_by_pytorch().difference(DYNAMIC_NAMES, CONSTRUCTION, CLASS_CREATION))

    @abc.abstractmethod
    def add(self, item: Any, where: str = "") -> None:
        """Add an object, reached by a name."""

    @abc.abstractmethod
    def _add_class(self, kind: type, *, is_made: bool) -> None:
        """Add a class, of which code may make instances."""

    def add_text(self, *texts: str) -> None:
        """Add texts."""
        for text in texts:
            data = text.encode("utf-8", "surrogatepass")
            self._sha.update(len(data).to_bytes(8, "little") + data)

    def _remember(self, item: Any) -> None:
        self._numbers[id(item)] = len(self._numbers)
        self._alive.append(item)

    def _number_of(self, item: Any) -> int:
        """Return the number of an owner of members, in the order in which these are reached."""
        if id(item) not in self._owners:
            self._owners[id(item)] = len(self._owners)
            self._alive.append(item)
        return self._owners[id(item)]

    @contextlib.contextmanager
    def _within(self, where: str) -> Iterator[None]:
        self._path.append(where)
        try:
            yield
        finally:
            self._path.pop()

    def _unknown(self, reason: str) -> UnknownContentError:
        place = " -> ".join(dict.fromkeys(filter(None, self._path)))
        return UnknownContentError(f"{reason} ({place})" if place else reason)

    def _add_bytes(self, data: bytes) -> None:
        self.add_text("bytes", hashlib.sha256(data).hexdigest())

    def _add_items(self, items: Iterable[Any]) -> None:
        items = list(items)
        self.add_text(type(items).__name__, str(len(items)))
        for index, item in enumerate(items):
            self.add(item, f"[{index}]")

    def _add_sequence(self, item: Iterable[Any]) -> None:
        self.add_text(type(item).__name__)
        if isinstance(item, collections.deque):
            self.add(item.maxlen)
        self._add_items(item)

    def _add_set(self, item: Any) -> None:
        """Add a set in its order, which follows from the history of a set of numbers."""
        if any(type(element) not in BY_REPR and type(element) is not float for element in item):
            raise self._unknown("the order of a set of objects is another in each process")
        if len(item) > 1 and any(type(element) not in _ORDERED for element in item):
            raise self._unknown(
                f"the order of the set {reprlib.repr(item)} is another in each process: use a tuple or a dict"
            )
        self.add_text(type(item).__name__, *map(repr, item))

    def _add_elements(self, item: Any) -> None:
        """Add a set whose order does not count."""
        if any(type(element) not in BY_REPR and type(element) is not float for element in item):
            raise self._unknown("a set of objects has no certain content")
        self.add_text(type(item).__name__, *sorted(map(repr, item)))

    def _add_dict(self, item: Mapping[Any, Any]) -> None:
        self.add_text(type(item).__name__, str(len(item)))
        if isinstance(item, collections.defaultdict):
            self.add(item.default_factory)
        for key, value in item.items():
            self.add(key)
            self.add(value, f"[{key!r}]")
