"""``npu completions``: the script that teaches a shell to complete ``npu``."""

from __future__ import annotations

import argparse
from typing import Any

from npu_ir.errors import UsageError

_EPILOG = """\
example:
  npu completions bash > ~/.local/share/bash-completion/completions/npu
  npu completions zsh > ~/.zfunc/_npu       (a folder of $fpath)
  npu completions tcsh > ~/.npu.tcsh        (and: source ~/.npu.tcsh)
"""


def add_to(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "completions",
        help="print completions for a shell",
        description="Print the script that completes npu in a shell.",
        epilog=_EPILOG,
    )
    parser.add_argument("shell", choices=("bash", "zsh", "tcsh"))
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Print the script."""
    try:
        import shtab
    except ImportError as error:
        raise UsageError(
            "completions need shtab, which is not installed", fix='python -m pip install "npu-ir[cli]"'
        ) from error
    from npu_ir.cli.parser import build_parser

    print(shtab.complete(build_parser(), shell=options.shell))
