"""``npu completions``: the completion script of a shell."""

from __future__ import annotations

import argparse
from typing import Any

from npu_ir.errors import UsageError

_EPILOG = """\
example:
  npu completions bash > ~/.local/share/bash-completion/completions/npu
  npu completions zsh > ~/.zfunc/_npu       (a folder of $fpath)
  npu completions fish > ~/.config/fish/completions/npu.fish
  npu completions tcsh > ~/.npu.tcsh        (and: source ~/.npu.tcsh)

Names of passes, pipelines, backends and runners are those of the plugins that are installed when the script
is made: make it again when you install others.
"""


def add_to(commands: Any) -> None:
    parser = commands.add_parser(
        "completions",
        help="print completions for a shell",
        description="Print the script that completes npu in a shell.",
        epilog=_EPILOG,
    )
    parser.add_argument("shell", choices=("bash", "zsh", "fish", "tcsh"))
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    try:
        import shtab
    except ImportError as error:
        raise UsageError(
            "completions need shtab, which is not installed", fix='python -m pip install "npu-ir[cli]"'
        ) from error
    from npu_ir.cli.parser import build_parser

    if options.shell not in shtab.SUPPORTED_SHELLS:
        raise UsageError(
            f"shtab {shtab.__version__} has no completions for {options.shell}",
            fix="python -m pip install --upgrade shtab",
        )
    parser = build_parser()
    _set_choices(parser)
    print(shtab.complete(parser, shell=options.shell))


def _set_choices(parser: argparse.ArgumentParser) -> None:
    """Set the names that options take as their choices; the parser is then usable for completions only."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for command in action.choices.values():
                _set_choices(command)
        elif hasattr(action, "value_names"):
            action.choices = sorted(action.value_names())
