"""Progress line on a terminal for commands that take long.

The line is on stderr, and only if that is a terminal. It appears after two seconds, is erased before other
output, and removed when the command ends, even with an error.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from types import TracebackType
from typing import Any, TextIO

_DELAY_S = 2.0
_INTERVAL_S = 1.0
_ERASE = "\x1b[K"  # everything right of the cursor, including the ^C that a terminal echoes
_COLUMNS = 80  # of a terminal that does not report it


class Progress:
    """Display of the current stage of a command; one per command, as ``options.progress``.

    >>> def run(options):
    ...     options.progress.stage("reading weights")
    ...     ...
    ...     print("done")  # what is written to stdout ends the stage

    A context manager: the line is only shown inside it.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._is_shown = self._stream.isatty() and os.environ.get("TERM") != "dumb"
        self._lock = threading.Lock()
        self._end = threading.Event()
        self._ticks = threading.Thread(target=self._tick, daemon=True)
        self._what = ""
        self._since = 0.0
        self._is_drawn = False
        self._is_held = False  # by an unfinished line on stderr, such as a progress bar of the model's own
        self._outputs: tuple[TextIO, TextIO] = sys.stdout, sys.stderr

    def stage(self, what: str) -> None:
        """Begin a stage: ``capturing``, ``reading weights``."""
        with self._lock:
            self._what, self._since = what, time.monotonic()

    def __enter__(self) -> Progress:
        if self._is_shown:
            self._outputs = sys.stdout, sys.stderr
            sys.stdout = _Output(sys.stdout, self, ends_stage=True)
            sys.stderr = _Output(sys.stderr, self, ends_stage=False)
            self._ticks.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_shown:
            self._end.set()
            sys.stdout, sys.stderr = self._outputs
            self._ticks.join()
            self.erase_line()

    def erase_line(self, text: str = "", *, ends_stage: bool = True) -> None:
        """Erase the line before ``text`` is written, until the next stage or the end of the written line."""
        with self._lock:
            self._what = "" if ends_stage else self._what
            self._is_held = bool(text) and not text.endswith("\n")
            if self._is_drawn:
                self._stream.write(f"\r{_ERASE}")
                self._stream.flush()
                self._is_drawn = False

    def _tick(self) -> None:
        delay = _DELAY_S
        while not self._end.wait(delay):
            delay = _INTERVAL_S
            with self._lock:
                if self._what and not self._is_held:
                    self._draw(f"{self._what} ... {time.monotonic() - self._since:.0f} s")

    def _draw(self, text: str) -> None:
        try:
            columns = os.get_terminal_size(self._stream.fileno()).columns
        except OSError:
            columns = 0
        text = text[: (columns or _COLUMNS) - 1]  # a character in the last column would wrap the line
        self._stream.write(f"\r{text}{_ERASE}")
        self._stream.flush()
        self._is_drawn = True


class _Output:
    """A stream that erases the progress line before it writes."""

    def __init__(self, stream: TextIO, progress: Progress, *, ends_stage: bool) -> None:
        self._stream = stream
        self._progress = progress
        self._ends_stage = ends_stage

    def write(self, text: str) -> int:
        if text:  # print(..., end="") also writes an empty string
            self._progress.erase_line(text, ends_stage=self._ends_stage)
        return self._stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
