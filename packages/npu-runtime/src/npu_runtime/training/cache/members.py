"""Members of classes, instances and modules, which count as soon as some code uses their names."""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterable

from npu_runtime.training.cache.known_code import DYNAMIC_NAMES

_NO_NAME = ""


class Members:
    """Attributes that are added to a digest when code is found that uses their names.

    Attributes:
        names: The names that code uses.
        classes: The classes whose members are here.
    """

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.classes: set[tuple[type, bool]] = set()
        self._is_dynamic = False
        self._waiting: dict[str, list[Callable[[], None]]] = {}
        self._queue: collections.deque[Callable[[], None]] = collections.deque()

    def add(self, name: str, adding: Callable[[], None]) -> None:
        """Keep an attribute until its name is used."""
        if self._is_dynamic or name in self.names:
            self._queue.append(adding)
        else:
            self._waiting.setdefault(name, []).append(adding)

    def add_for_dynamic(self, adding: Callable[[], None]) -> None:
        """Keep something until code is found that uses names which are not in it."""
        self.add(_NO_NAME, adding)

    def queue(self, adding: Callable[[], None]) -> None:
        """Have something added, whatever is used."""
        self._queue.append(adding)

    def use(self, names: Iterable[str]) -> None:
        """Take note that code uses these names."""
        for name in sorted(names):
            if name in self.names:
                continue
            self.names.add(name)
            if name in DYNAMIC_NAMES:
                self.use_all()
            self._queue.extend(self._waiting.pop(name, ()))

    def use_all(self) -> None:
        """Take note that code uses names that are not in it."""
        if not self._is_dynamic:
            self._is_dynamic = True
            for waiting in self._waiting.values():
                self._queue.extend(waiting)
            self._waiting.clear()

    def next(self) -> Callable[[], None] | None:
        """Return what is to be added next; None if nothing is."""
        return self._queue.popleft() if self._queue else None
