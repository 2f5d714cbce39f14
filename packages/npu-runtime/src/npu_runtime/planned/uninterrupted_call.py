"""A call that Ctrl-C does not end in the middle, such as the commit phase, which writes state."""

from __future__ import annotations

import signal
import threading

# The functions of the module `signal` are wrappers of these, and take ten times as long.
from _signal import getsignal as get_handler  # type: ignore[import-not-found]
from _signal import signal as set_handler
from collections.abc import Callable
from typing import Any

_INTERRUPT = int(signal.SIGINT)
_MAIN_THREAD = threading.main_thread().ident  # only this one calls handlers


class UninterruptedCall:
    """A function; where the handler of SIGINT is to be called meanwhile, it is called at the end.

    Attributes:
        count: How often the function has returned.
    """

    __slots__ = ("_function", "count")

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self.count = 0

    def __call__(self, *args: Any) -> Any:
        handler: Any = get_handler(_INTERRUPT)
        if not callable(handler) or threading.get_ident() != _MAIN_THREAD:
            result = self._function(*args)
            self.count += 1
            return result
        frames: list[Any] = []
        set_handler(_INTERRUPT, lambda _, frame: frames.append(frame))
        try:
            result = self._function(*args)
            self.count += 1
            return result
        finally:
            set_handler(_INTERRUPT, handler)
            if frames:
                handler(_INTERRUPT, frames[-1])
