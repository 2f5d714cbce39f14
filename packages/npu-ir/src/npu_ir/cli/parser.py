"""The parser of ``npu``: its own commands, then those of the plugins."""

from __future__ import annotations

import argparse
import platform
import warnings
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, NoReturn

import torch

from npu_ir.cli.failures import EXIT_CODES, WRONG_USAGE, warn
from npu_ir.cli.lost_files import require_no_lost_files
from npu_ir.core.user_code import did_you_mean
from npu_ir.errors import RegistryError
from npu_ir.plugins import plugin_manager
from npu_ir.plugins.distributions import OWN, install_hint, installed_version

if TYPE_CHECKING:
    _SubParsersAction = argparse._SubParsersAction["Parser"]
else:
    _SubParsersAction = argparse._SubParsersAction

COMMANDS = (
    *("extract", "info", "show", "diff", "specialize", "run", "verify"),
    *("check-compat", "plugins", "doctor", "completions"),
)
COMMON_OPTIONS = {
    "--debug": "show the traceback of an error",
    "--verbose": "show what PyTorch says while it captures a model, too",
}


class Parser(argparse.ArgumentParser):
    """Argument parser that reports an error and its fix on one line each, in place of the usage text."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        self._given = list(args or ())
        return super().parse_known_args(args, namespace)

    def error(self, message: str, fix: str | None = None) -> NoReturn:
        if "required:" in message and "--json" in self._given:
            fix = fix or "write --json last: a word behind it is the FILE that it writes"
        self.exit(WRONG_USAGE, f"{self.prog}: error: {message}\n  fix: {fix or f'see {self.prog} --help'}\n")

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Return the options; unknown ones, and outputs that would replace inputs, are refused."""
        options, unknown = self.parse_known_args(args, namespace)
        commands = next(action for action in self._actions if isinstance(action, Commands))
        command = commands.choices[options.command]
        if unknown:
            command.refuse(unknown)
        require_no_lost_files(command._actions, options)
        return options

    def refuse(self, unknown: Sequence[str]) -> NoReturn:
        """Report unknown arguments, each with a similar known option."""
        known = [name for name in self._option_string_actions if name.startswith("--")]
        words = [f"{word}{did_you_mean(word.partition('=')[0], known)}" for word in unknown]
        self.error(f"unrecognized arguments: {' '.join(words)}")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is None or value in action.choices:
            return
        if not isinstance(action, Commands):
            known = ", ".join(map(str, action.choices))
            similar = did_you_mean(str(value), map(str, action.choices))
            raise argparse.ArgumentError(action, f"invalid choice: {value!r}{similar}, not one of {known}")
        source = install_hint("commands", value)
        similar = did_you_mean(value, action.choices) if source is None else ""
        self.error(f"there is no command {value!r}{similar}", source)


class Versions(argparse.Action):
    """Action that prints the name and version of each installed package, one per line."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        versions = {name: installed_version(name) for name in OWN}
        versions.update(torch=str(torch.__version__), python=platform.python_version())
        print("".join(f"{name} {version}\n" for name, version in versions.items() if version), end="")
        parser.exit(0)


class Commands(_SubParsersAction):
    """The subcommands and the origin of each; duplicate names are rejected."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._origins: dict[str, str] = {}
        self._origin = "npu-ir"

    def begin(self, origin: str) -> None:
        """Set the origin of the commands that follow."""
        self._origin = origin

    def added_commands(self) -> list[str]:
        """Return the commands that have been added since `begin`."""
        return [name for name, origin in self._origins.items() if origin == self._origin]

    def withdraw(self) -> None:
        """Remove the commands that have been added since `begin`."""
        for name in self.added_commands():
            del self._origins[name], self._name_parser_map[name]
        self._choices_actions = [choice for choice in self._choices_actions if choice.dest in self._origins]

    def add_parser(self, name: str, **options: Any) -> Parser:
        """Add a command.

        Raises:
            RegistryError: A command with this name or alias exists; names both origins.
        """
        words = (name, *options.get("aliases", ()))
        for word in words:
            if word in self._origins:
                raise RegistryError(
                    f"the command {word!r} is already there: "
                    f"from {self._origins[word]}, and now from {self._origin}",
                    fix=f"disable one of the plugins ({plugin_manager.DISABLE_VARIABLE})",
                )
        options = {"formatter_class": argparse.RawDescriptionHelpFormatter, "allow_abbrev": False, **options}
        parser = super().add_parser(name, **options)
        self._origins.update(dict.fromkeys(words, self._origin))
        for option, text in COMMON_OPTIONS.items():
            parser.add_argument(option, action="store_true", default=argparse.SUPPRESS, help=text)
        return parser


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of ``npu``; plugins that cannot be used are reported on stderr."""
    parser = Parser(
        prog="npu",
        description="Any PyTorch model in, a clean graph of ATen ops out, verified.",
        epilog=f"npu COMMAND --help shows what a command takes, with an example.\n\n{EXIT_CODES}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--version",
        action=Versions,
        nargs=0,
        help="show the versions of the packages, of PyTorch and of Python",
    )
    for name, text in COMMON_OPTIONS.items():
        parser.add_argument(name, action="store_true", help=text)
    commands = parser.add_subparsers(
        action=Commands, dest="command", metavar="COMMAND", required=True, title="commands"
    )
    for name in COMMANDS:
        import_module(f"npu_ir.cli.commands.{name.replace('-', '_')}").add_to(commands)
    _add_plugin_commands(commands)
    return parser


def _add_plugin_commands(commands: Any) -> None:
    with warnings.catch_warnings():
        # Reported below, in the format of `warn`.
        warnings.simplefilter("ignore", plugin_manager.PluginWarning)
        reports = plugin_manager.get_plugins().reports
        plugin_manager.add_commands(commands)
    for report in reports:
        plugin = f"plugin {report.name!r} ({report.distribution})"
        if report.refused is not None and plugin_manager.DISABLE_VARIABLE not in report.refused:
            warn(f"{plugin} was refused: {report.refused}")
        if report.commands_refused is not None:
            warn(f"the commands of {plugin} were refused: {report.commands_refused}")
