"""Turns: one call at a time changes what several calls share, in this process and in those forked from it."""

from __future__ import annotations

import os
import threading
import weakref
from typing import ClassVar


class Turn:
    """The turn to change state.

    A forked process has a copy of the memory, and one of the threads. A lock that another thread held would
    stay locked there, so it is replaced; and what that thread was changing is left half-written.

    Attributes:
        lock: Held by whoever changes the state, or reads it as a whole.
        is_taken: True while the holder of the lock changes the state.
        is_torn: True in a forked process where the state may be half-written, until it is written anew.
    """

    _all: ClassVar[weakref.WeakSet[Turn]] = weakref.WeakSet()

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.is_taken = False
        self.is_torn = False
        Turn._all.add(self)

    @classmethod
    def renew_locks(cls) -> None:
        """Replace, in a forked process, the locks of threads that do not run there."""
        for turn in cls._all:
            if turn.lock.acquire(blocking=False):  # nobody held it, or the thread that has forked
                turn.lock.release()
            else:
                turn.lock = threading.RLock()
                turn.is_torn |= turn.is_taken
                turn.is_taken = False


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=Turn.renew_locks)
