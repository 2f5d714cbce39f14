"""Progress of a command on a terminal, and its removal."""

import argparse
import contextlib
import fcntl
import io
import os
import pty
import re
import struct
import sys
import termios
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from npu_ir.cli import progress as module
from npu_ir.cli.failures import run_safely
from npu_ir.cli.progress import Progress
from tests.support.rows import each_row

_END = "\x00"


class Terminal:
    """A pseudo-terminal in place of stderr."""

    def __init__(self) -> None:
        self._controller, device = pty.openpty()
        self.stream = os.fdopen(device, "w", buffering=1)

    def seen(self) -> str:
        """Return everything that was written to it since the last time."""
        self.stream.write(_END)
        self.stream.flush()
        written = ""
        while not written.endswith(_END):
            written += os.read(self._controller, 1 << 16).decode()
        return written.removesuffix(_END)

    def close(self) -> None:
        self.stream.close()
        os.close(self._controller)


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    found = Terminal()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(module, "_DELAY_S", 0.05)
    monkeypatch.setattr(module, "_INTERVAL_S", 0.05)
    yield found
    found.close()


def screen(written: str) -> list[str]:
    """Return the screen lines after ``written``: a carriage return rewinds, ESC [K erases the rest."""
    lines = []
    for line in written.replace("\r\n", "\n").split("\n"):
        cells: list[str] = []
        for part in line.split("\r"):
            text, erase, rest = part.partition("\x1b[K")
            cells = list(text + rest) if erase else [*text, *cells[len(text) :]]
        lines.append("".join(cells).rstrip())
    return lines


def run(terminal: Terminal, work: Callable[[Any], object]) -> int:
    """Run ``work`` as a command, with stderr on a terminal."""

    def parser() -> argparse.ArgumentParser:
        found = argparse.ArgumentParser()
        found.set_defaults(run=work, debug=False, verbose=False)
        return found

    with contextlib.redirect_stderr(terminal.stream):
        return run_safely(parser, [])


def wait_for_line(progress: Progress) -> None:
    deadline = time.monotonic() + 30
    while not progress._is_drawn and time.monotonic() < deadline:
        time.sleep(0.01)


def capture_slowly(options: Any) -> None:
    options.progress.stage("capturing")
    wait_for_line(options.progress)


def test_a_stage_that_takes_long_is_shown_with_its_seconds_and_nothing_is_left(terminal: Terminal) -> None:
    before = sys.stdout, sys.stderr

    assert run(terminal, capture_slowly) == 0

    written = terminal.seen()
    assert re.search(r"capturing \.\.\. 0 s", written)
    assert screen(written) == [""]
    assert (sys.stdout, sys.stderr) == before


def test_a_quick_command_shows_nothing(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_DELAY_S", 5.0)

    run(terminal, lambda options: options.progress.stage("capturing"))

    assert terminal.seen() == ""


def test_what_is_printed_ends_the_stage(terminal: Terminal, capsys: pytest.CaptureFixture[str]) -> None:
    def work(options: Any) -> None:
        capture_slowly(options)
        sys.stdout.write("result\n")
        shown.append(terminal.seen())
        time.sleep(0.2)

    shown: list[str] = []
    run(terminal, work)

    assert capsys.readouterr().out == "result\n"
    assert "capturing" in shown[0]
    assert screen(shown[0]) == [""]
    assert terminal.seen() == ""


def test_warnings_stand_on_lines_of_their_own(terminal: Terminal) -> None:
    def work(options: Any) -> None:
        capture_slowly(options)
        sys.stderr.write("npu: warning: odd\n")
        wait_for_line(options.progress)

    run(terminal, work)

    written = terminal.seen()
    assert screen(written) == ["npu: warning: odd", ""]
    assert "capturing" in written.partition("odd")[2]


@each_row("parts", [["shards: 1/2"], ["shards: 1/2", ""]])
def test_a_progress_bar_of_the_model_is_left_alone(parts: list[str], terminal: Terminal) -> None:
    def work(options: Any) -> None:
        options.progress.stage("making the model")
        for part in parts:
            sys.stderr.write(part)
        time.sleep(0.2)
        sys.stderr.write("\rshards: 2/2\n")

    run(terminal, work)

    written = terminal.seen()  # a progress line may come before the bar and after it, never inside
    assert "shards: 1/2\rshards: 2/2\r\n" in written
    assert screen(written) == ["shards: 2/2", ""]


@each_row(
    "error, code, said",
    [(KeyboardInterrupt(), 130, "npu: interrupted"), (ValueError("odd"), 1, "npu: error: ValueError: odd")],
)
def test_the_line_is_gone_when_a_command_is_cut_short(
    terminal: Terminal, error: BaseException, code: int, said: str
) -> None:
    def work(options: Any) -> None:
        capture_slowly(options)
        raise error

    assert run(terminal, work) == code

    written = terminal.seen()
    assert "capturing" in written
    assert screen(written)[0] == said


@each_row("term", ["pipe", "dumb"])
def test_nothing_is_shown_where_there_is_no_terminal(
    term: str, terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = io.StringIO() if term == "pipe" else terminal.stream
    monkeypatch.setenv("TERM", term)

    with contextlib.redirect_stderr(stream), Progress() as progress:
        progress.stage("capturing")
        time.sleep(0.2)
        assert sys.stderr is stream

    assert terminal.seen() == ""
    assert not isinstance(stream, io.StringIO) or stream.getvalue() == ""


def test_a_stage_is_cut_to_the_width_of_the_terminal(terminal: Terminal) -> None:
    fcntl.ioctl(terminal.stream.fileno(), termios.TIOCSWINSZ, struct.pack("HHHH", 24, 10, 0, 0))

    with Progress(terminal.stream) as progress:
        progress.stage("capturing")
        wait_for_line(progress)

    assert terminal.seen().split("\r")[1] == "capturing\x1b[K"
