"""The command line ``npu``.

In: arguments of a shell. Out: an exit status, text on stdout, errors on stderr, files. Open `parser.py`
first; each command is a module of `commands/`.
"""

from __future__ import annotations

from collections.abc import Sequence

from npu_ir.cli.failures import run_safely
from npu_ir.cli.parser import build_parser

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one ``npu`` command and return its exit code.

    Errors are reported on stderr and never raised; the exit codes are in ``npu --help``.

    Args:
        argv: The arguments of ``npu``; those of this process if not given.
    """
    return run_safely(build_parser, argv)
