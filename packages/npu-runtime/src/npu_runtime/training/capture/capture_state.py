"""The state of each thread: capturing, replaying or neither.

During a capture or a replay nothing may be allocated or read by the host, and no other capture or replay may
begin.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from npu_ir._torch.tracing import is_tracing
from npu_runtime._torch.state import active_tracer, may_be_traced
from npu_runtime.errors import CaptureError, TracingError


class _State(threading.local):
    activity: str = ""  # what the thread is doing; empty outside


STATE = _State()


def in_capture() -> bool:
    """Return whether this thread is capturing or replaying a step."""
    return bool(STATE.activity)


def require_outside_capture(what: str) -> None:
    """Raise if this thread is capturing or replaying.

    Args:
        what: The action, as the subject of a sentence: ``"a warm-up"``.

    Raises:
        CaptureError: This thread is capturing or replaying.
    """
    if STATE.activity:
        raise CaptureError(
            f"{what} is not allowed in a {STATE.activity}",
            where=f"thread {threading.current_thread().name!r}",
            fix=f"do it before the {STATE.activity} begins, or after it has ended",
        )


def require_untraced(what: str) -> None:
    """Raise while PyTorch traces or transforms what this thread does: kernels of a step would not take part.

    Args:
        what: As for `require_outside_capture`.

    Raises:
        TracingError: It says what traces it.
    """
    if may_be_traced() and (tracer := active_tracer()) is not None:
        tracer = "a trace, of another step or by make_fx" if is_tracing() else tracer
        raise TracingError(
            f"{what} is called within {tracer}, which does not see what a replay computes and writes",
            fix="call the step outside of it: it computes gradients, and updates parameters, by itself",
        )


@contextlib.contextmanager
def activity(name: str) -> Iterator[None]:
    """Make `in_capture` true for the block: a ``"capture"``, or a ``"replay"``.

    Raises:
        CaptureError: This thread is capturing or replaying.
    """
    require_outside_capture(f"a {name}")
    STATE.activity = name
    try:
        yield
    finally:
        STATE.activity = ""


@contextlib.contextmanager
def interrupted() -> Iterator[None]:
    """Make `in_capture` false for the block: a replay that finds its recording outdated makes another one."""
    before, STATE.activity = STATE.activity, ""
    try:
        yield
    finally:
        STATE.activity = before
