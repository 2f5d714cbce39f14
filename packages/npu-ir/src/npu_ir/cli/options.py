"""Options that several commands share."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from npu_ir.interpreter.runners import all_runners
from npu_ir.plugins import plugin_manager

# How the generated completions say "a file": what shtab.FILE holds, which is only there with the extra `cli`.
_COMPLETE_FILES = {
    "bash": "_shtab_compgen_files",
    "zsh": "_files",
    "tcsh": "f",
    "fish": "(__fish_complete_path (commandline -ct))",
}

INT_HIGH = 2


def add_file(parser: argparse._ActionsContainer, *names: str, help: str, **more: Any) -> None:
    """Add an option or argument that names a file; the shell completes it."""
    action = parser.add_argument(*names, metavar="FILE", help=help, **{"type": Path, **more})
    action.complete = _COMPLETE_FILES  # type: ignore[attr-defined]


def complete(action: argparse.Action, names: Callable[[], Iterable[str]]) -> None:
    """Have the shell complete the names that an option or argument takes.

    Args:
        action: What `add_argument` returns.
        names: Asked when the completions are made; others than these remain allowed.
    """
    action.value_names = names  # type: ignore[attr-defined]


def add_inputs(parser: argparse.ArgumentParser, help: str) -> None:
    """Add ``--input``, which `npu_ir.cli.input_text` reads."""
    parser.add_argument("-i", "--input", action="append", default=[], metavar="NAME=VALUE", help=help)


def add_weights(parser: argparse.ArgumentParser, help: str, use: str = "") -> None:
    """Add ``--weights``, ``--random-weights`` and ``--constants``, which `npu_ir.cli.weight_choice` reads.

    Args:
        parser: Of the command.
        help: Of ``--weights``.
        use: What they are for, at the beginning of each help.
    """
    weights = parser.add_mutually_exclusive_group()
    add_file(weights, "--weights", help=f"{use}{help}")
    weights.add_argument(
        "--random-weights",
        type=int,
        metavar="SEED",
        help=f"{use}make up weights: to see it run, or to time it",
    )
    add_constants(parser, use)


def add_constants(parser: argparse.ArgumentParser, use: str = "") -> None:
    """Add ``--constants``, a file of tensors that no ``state_dict`` has."""
    add_file(
        parser,
        "--constants",
        help=f"{use}tensors by name that are not in the state_dict, such as non-persistent buffers",
    )


def add_factory(parser: argparse.ArgumentParser) -> None:
    """Add what `npu_ir.cli.factory` makes the model from."""
    parser.add_argument(
        "factory",
        metavar="MODULE:FACTORY",
        help="what makes the model: models/net.py:make, package.module:Class",
    )
    parser.add_argument(
        "--train", action="store_true", help="take the model in train mode (default: eval mode)"
    )


def add_sizes(parser: argparse.ArgumentParser) -> None:
    """Add ``--size``, which `npu_ir.cli.size_text` reads."""
    parser.add_argument(
        "--size",
        action="append",
        default=[],
        metavar="SYMBOL=N",
        help="a size that the graph leaves open, for random inputs (default: the smallest possible, from 2 on)",
    )


def add_runner(parser: argparse.ArgumentParser) -> None:
    """Add ``--on``, the name of a runner (`npu_ir.interpreter.runners`)."""
    action = parser.add_argument(
        "--on",
        metavar="RUNNER",
        help="what runs the graph: executor, interpreter or a plugin's (default: the executor, with npu-runtime)",
    )
    complete(action, all_runners)


def add_backends(parser: argparse.ArgumentParser, help: str) -> None:
    """Add ``--backend``, the names of backends for the executor, in order of preference."""
    action = parser.add_argument("--backend", action="append", metavar="NAME", help=help)
    complete(action, lambda: plugin_manager.loaded().backends)


def add_random_data(parser: argparse.ArgumentParser) -> None:
    """Add what `npu_ir.cli.tensors` makes the inputs from that are not given."""
    parser.add_argument("--seed", type=int, default=0, help="of the random data and of dropout (default: 0)")
    parser.add_argument(
        "--int-high",
        type=number_from(1),
        default=INT_HIGH,
        metavar="N",
        help=f"random integers are below this (default: {INT_HIGH}, valid as any index)",
    )


def add_tolerances(parser: argparse.ArgumentParser) -> None:
    """Add ``--rtol`` and ``--atol``, by how much numbers may differ."""
    for name, kind, default in (("--rtol", "relative", "1.3e-6"), ("--atol", "absolute", "1e-5")):
        parser.add_argument(
            name, type=_tolerance, help=f"{kind} tolerance (default: by dtype, float32 {default})"
        )


def _tolerance(text: str) -> float:
    try:
        number = float(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no number") from error
    if not number >= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no tolerance, which is 0 or more")
    return number


def number_from(low: int) -> Callable[[str], int]:
    """Return what reads a whole number that is not below ``low``."""

    def read(text: str) -> int:
        if not text.isdecimal() or int(text) < low:
            raise argparse.ArgumentTypeError(f"{text!r} is not a number from {low} on")
        return int(text)

    return read
