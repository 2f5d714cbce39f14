"""The parser of ``npu``: its own commands, then those of the plugins."""

from __future__ import annotations

import argparse
import platform
import warnings
from importlib import import_module
from typing import TYPE_CHECKING, Any, NoReturn

import torch

import npu_ir
from npu_ir import plugins
from npu_ir.cli.failures import EXIT_CODES, WRONG_USAGE, warn
from npu_ir.errors import RegistryError

if TYPE_CHECKING:
    _SubParsersAction = argparse._SubParsersAction[argparse.ArgumentParser]
else:
    _SubParsersAction = argparse._SubParsersAction

COMMANDS = (
    "extract",
    "info",
    "show",
    "diff",
    "specialize",
    "run",
    "verify",
    "plugins",
    "doctor",
    "completions",
)


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line and where to read more, in place of the usage text."""

    def error(self, message: str) -> NoReturn:
        self.exit(WRONG_USAGE, f"{self.prog}: error: {message}\n  fix: see {self.prog} --help\n")


class Commands(_SubParsersAction):
    """The subcommands, and who added each; a name that is taken is refused."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._origins: dict[str, str] = {}
        self._origin = "npu-ir"

    def begin(self, origin: str) -> None:
        """State who adds the commands that follow."""
        self._origin = origin

    def added(self) -> list[str]:
        """Return the commands that have been added since `begin`."""
        return [name for name, origin in self._origins.items() if origin == self._origin]

    def withdraw(self) -> None:
        """Take back the commands that have been added since `begin`."""
        for name in self.added():
            del self._origins[name], self._name_parser_map[name]
        self._choices_actions = [choice for choice in self._choices_actions if choice.dest in self._origins]

    def add_parser(self, name: str, **options: Any) -> argparse.ArgumentParser:
        """Add a command.

        Raises:
            RegistryError: There is one of this name or alias already; names both origins.
        """
        words = (name, *options.get("aliases", ()))
        for word in words:
            if word in self._origins:
                raise RegistryError(
                    f"the command {word!r} is already there: from {self._origins[word]}, and now from {self._origin}",
                    fix=f"disable one of the plugins ({plugins.DISABLE_VARIABLE})",
                )
        options = {"formatter_class": argparse.RawDescriptionHelpFormatter, "allow_abbrev": False, **options}
        parser = super().add_parser(name, **options)
        self._origins.update(dict.fromkeys(words, self._origin))
        parser.add_argument(
            "--debug", action="store_true", default=argparse.SUPPRESS, help="show the traceback of an error"
        )
        return parser


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of ``npu``; a plugin that cannot be used is reported on stderr."""
    parser = Parser(
        prog="npu",
        description="Any PyTorch model in, a clean graph of ATen ops out, verified.",
        epilog=f"npu COMMAND --help shows what a command takes, with an example.\n\n{EXIT_CODES}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    versions = (
        f"npu-ir {npu_ir.__version__} (PyTorch {torch.__version__}, Python {platform.python_version()})"
    )
    parser.add_argument("--version", action="version", version=versions, help="show the versions")
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    commands = parser.add_subparsers(
        action=Commands, dest="command", metavar="COMMAND", required=True, title="commands"
    )
    for name in COMMANDS:
        import_module(f"npu_ir.cli.commands.{name}").add_to(commands)
    _add_plugin_commands(commands)
    return parser


def _add_plugin_commands(commands: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", plugins.PluginWarning)  # said below, in the words of a command line
        reports = plugins.loaded().reports
        plugins.add_commands(commands)
    for report in reports:
        if report.refused is not None and plugins.DISABLE_VARIABLE not in report.refused:
            warn(f"plugin {report.name!r} ({report.distribution}) was refused: {report.refused}")
        if report.commands_refused is not None:
            warn(
                f"the commands of plugin {report.name!r} ({report.distribution}) were refused: {report.commands_refused}"
            )
