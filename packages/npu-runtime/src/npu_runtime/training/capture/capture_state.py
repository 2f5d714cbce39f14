"""The state of each thread: capturing, replaying or neither.

During a capture or a replay nothing may be allocated or read by the host, and no other capture or replay may
begin.
"""

from __future__ import annotations

import threading
from types import TracebackType

from npu_runtime.errors import CaptureError


class _State(threading.local):
    activity: str = ""  # what the thread is doing; empty outside


_STATE = _State()


def in_capture() -> bool:
    """Return whether this thread is capturing or replaying a step."""
    return bool(_STATE.activity)


def require_outside_capture(what: str) -> None:
    """Raise if this thread is capturing or replaying.

    Args:
        what: The action, as the subject of a sentence: ``"a warm-up"``.

    Raises:
        CaptureError: This thread is capturing or replaying.
    """
    if _STATE.activity:
        raise CaptureError(
            f"{what} is not allowed in a {_STATE.activity}",
            where=f"thread {threading.current_thread().name!r}",
            fix=f"do it before the {_STATE.activity} begins, or after it has ended",
        )


class _Activity:
    """A context in which `in_capture` is true; a class, as a generator takes longer than a small replay."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __enter__(self) -> None:
        if _STATE.activity:
            require_outside_capture(f"a {self._name}")
        _STATE.activity = self._name

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _STATE.activity = ""


# Stateless but for a name, so any number of threads may enter them at once.
CAPTURING = _Activity("capture")
REPLAYING = _Activity("replay")
