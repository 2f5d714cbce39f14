"""Exit codes and error messages of commands."""

from __future__ import annotations

import argparse
import contextlib
import errno
import io
import logging
import os
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from npu_ir.capture.export_messages import LOGGER
from npu_ir.cli.console import escape_controls
from npu_ir.cli.progress import Progress
from npu_ir.core.user_code import user_line
from npu_ir.errors import FactoryError, NpuError, RegistryError, UsageError

OK = 0
FAILED = 1
WRONG_USAGE = 2
INTERRUPTED = 130
PIPE_CLOSED = 141

EXIT_CODES = """\
exit codes:
  0    done; of verify, compare and diff: the two agree
  1    the command failed, or found what it looks for: verify, compare and diff a difference, check-compat a
       call that means something else, opt --bisect a pass at fault, explain less than --fail-under, bench
       results that cannot be compared, doctor and plugins --doctor something broken
  2    the command line is wrong
  130  interrupted (Ctrl-C)
  141  whatever was reading the output stopped (npu show ... | head)
"""


def run_safely(build_parser: Callable[[], argparse.ArgumentParser], argv: Sequence[str] | None) -> int:
    """Parse ``argv``, run its command, and return an exit code; never raises."""
    debug = False
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # names may have characters the terminal lacks
    try:
        options = build_parser().parse_args(argv)
        debug = options.debug
        with Progress() as options.progress, _formatted_warnings(), _capture_log(options):
            code = _run(options)
            sys.stdout.flush()
    except SystemExit as stop:  # argparse has printed everything: help, version or wrong usage
        return stop.code if isinstance(stop.code, int) else FAILED
    except KeyboardInterrupt:
        print("npu: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        _discard_output()
        return PIPE_CLOSED
    except Exception as error:  # noqa: BLE001 - top level: it becomes a message and an exit code
        if debug:
            print(escape_controls("".join(traceback.format_exception(error))), end="", file=sys.stderr)
        print(f"npu: error: {escape_controls(_explain(error))}", file=sys.stderr)
        return WRONG_USAGE if isinstance(error, UsageError) else FAILED
    return int(code or OK)


def format_error(error: NpuError) -> str:
    """Return the text of an error: its message and location on one line, further lines, and the fix."""
    first, *rest = error.message.split("\n")
    if error.where:
        first = f"{first} (at {error.where})"
    fix = [f"  fix: {error.fix}"] if error.fix else []
    return "\n".join([first, *rest, *fix])


def warn(text: str) -> None:
    print(f"npu: warning: {escape_controls(text)}", file=sys.stderr)


@contextlib.contextmanager
def _formatted_warnings() -> Iterator[None]:
    """Show warnings of this project in the format of `warn`, and all others in Python's."""
    before = warnings.formatwarning

    def format(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> str:
        if not category.__module__.startswith("npu_"):
            return before(message, category, *place, **more)
        return f"npu: warning: {escape_controls(str(message))}\n"

    warnings.formatwarning = format
    try:
        yield
    finally:
        warnings.formatwarning = before


@contextlib.contextmanager
def _capture_log(options: argparse.Namespace) -> Iterator[None]:
    """Show the log of torch.export on stderr, with ``--verbose``."""
    if not options.verbose:
        yield
        return
    level, handler = LOGGER.level, logging.StreamHandler()
    handler.setFormatter(logging.Formatter("torch.export: %(message)s"))
    LOGGER.addHandler(handler)
    LOGGER.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        LOGGER.removeHandler(handler)
        LOGGER.setLevel(level)


def _run(options: argparse.Namespace) -> int | None:
    run: Callable[[argparse.Namespace], int | None] | None = getattr(options, "run", None)
    if run is None:
        raise RegistryError(
            f"the command {options.command!r} does nothing",
            fix="the plugin that adds it must call set_defaults(run=function)",
        )
    try:
        return run(options)
    except SystemExit as error:  # from the model: argparse has finished
        raise FactoryError(
            f"the model ends the program: sys.exit({'' if error.code is None else repr(error.code)})",
            where=user_line(error),
            fix="raise an exception in its place",
        ) from error


def _explain(error: Exception) -> str:
    if isinstance(error, NpuError):
        return format_error(error)
    if isinstance(error, OSError) and error.errno == errno.ENOSPC and error.filename is None:
        _discard_output()
        return f"the output cannot be written: {error.strerror}\n  fix: make space where it goes"
    if isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG:
        return f"{error.strerror}: {error.filename}\n  fix: give a shorter path"
    return (
        f"{type(error).__name__}: {error}\n  fix: this one is not expected; --debug shows where it comes from"
    )


def _discard_output() -> None:
    """Discard buffered output: Python would report the error again at shutdown."""
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())
