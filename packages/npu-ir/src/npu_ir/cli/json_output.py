"""``--json [FILE]``: the report of a command as JSON, in place of its text or beside it."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from npu_ir.cli.options import add_output, parse_output_path
from npu_ir.errors import SerializationError, UsageError
from npu_ir.serial.atomic_write import write_file, writing

STDOUT: Final = "-"


def add_json(parser: argparse._ActionsContainer, content: str) -> None:
    """Add ``--json``, for `print_or_write_json`; ``content`` says what is in it."""
    add_output(
        parser,
        "--json",
        nargs="?",
        const=STDOUT,
        type=_parse_target,
        help=f"print {content} as JSON in place of the text; with FILE, write it there beside the text",
    )


def _parse_target(text: str) -> Path | str:
    if text == STDOUT:
        return text
    if Path(text).name == text and not Path(text).suffix:  # as in `npu passes --json cse`
        raise UsageError(
            f"--json {text}: a file of JSON has a name that ends in .json",
            fix=f"write --json {text}.json; or --json behind all else, to print it",
        )
    return parse_output_path("--json", text)


def is_text_wanted(options: argparse.Namespace) -> bool:
    """Return whether a command prints its text: stdout is not taken by JSON."""
    return bool(options.json != STDOUT)


def print_or_write_json(make: Callable[[], Any], options: argparse.Namespace, what: str) -> None:
    """Print or write plain data where ``--json`` says; without it, do nothing.

    Args:
        make: Returns the data; called if it is wanted.
        options: The result of the parser.
        what: A name of the data for an error, as in "the facts".

    Raises:
        SerializationError: The file cannot be written.
    """
    if options.json == STDOUT:
        print(_json_text(make()))
    elif options.json is not None:
        write_json(make(), options.json, what)


def write_json(data: Any, path: Path, what: str) -> None:
    """Write plain data to a file as JSON.

    Raises:
        SerializationError: The file cannot be written.
    """
    write_text(_json_text(data) + "\n", path, what)


def _json_text(data: Any) -> str:
    return json.dumps(data, indent=2, allow_nan=False)


def write_text(text: str, path: Path, what: str) -> None:
    """Write a text to a file.

    Raises:
        SerializationError: The file cannot be written.
    """
    with writing(what, path, SerializationError):
        write_file(path, text.encode())
