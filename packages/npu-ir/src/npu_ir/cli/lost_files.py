"""Refusal of outputs that would replace a file that the same command reads or writes."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from npu_ir.errors import NpuError, UsageError
from npu_ir.serial.load import companion_file_name, read_document
from npu_ir.serial.strict_json import Location


def require_no_lost_files(actions: Iterable[argparse.Action], options: argparse.Namespace) -> None:
    """Raise a `UsageError` if a command would write over a file that it reads, or write two to one path.

    A graph may be replaced by a graph, unless weights were saved with it.

    Args:
        actions: Those of the parser of the command.
        options: The result of the parser.
    """
    written: list[tuple[str, Path, str]] = []
    read: list[Path] = []
    for action in actions:
        if not hasattr(action, "complete"):
            continue
        paths = _paths_of(getattr(options, action.dest, None))
        if content := getattr(action, "content", None):
            written += [(action.option_strings[-1], path, content) for path in paths]
        else:
            read += paths
    for index, (option, path, content) in enumerate(written):
        for other, earlier, _ in written[:index]:
            if os.path.abspath(earlier) == os.path.abspath(path):
                raise UsageError(f"{other} and {option} are both {path}", fix="give two files")
        if path.exists():
            _require_other_file(option, path, content, [*read, *_inputs_of(options)])


def _require_other_file(option: str, path: Path, content: str, read: Iterable[Path]) -> None:
    for file in filter(Path.exists, read):
        if file.samefile(path):
            if content != "graph":
                raise UsageError(
                    f"{option} {path}: this file is read by the command", fix="give another file"
                )
            if any(_companions(file, "weights")):
                raise UsageError(
                    f"{file} was saved with its weights, which a graph in its place would lose",
                    fix=f"give another file with {option}",
                )
        elif path.suffix == ".safetensors" and any(
            other.exists() and other.samefile(path) for other in _companions(file, "tensors", "weights")
        ):
            raise UsageError(
                f"{option} {path}: the tensors of {file} are in this file", fix="give another file"
            )


def _companions(file: Path, *keys: str) -> Iterator[Path]:
    """Yield the files beside a graph that have its tensors; of a file that is not a graph, nothing."""
    if file.suffix in (".safetensors", ".pt", ".npy"):
        return
    try:
        document = read_document(file)
        names = [companion_file_name(document[key], Location(str(file)).at(key)) for key in keys]
    except (NpuError, OSError):
        return
    yield from (file.with_name(name) for name in names if name is not None)


def _inputs_of(options: argparse.Namespace) -> Iterator[Path]:
    """Yield the files that inputs are read from: ``NAME=@x.npy``, ``@x.safetensors#NAME``."""
    for text in getattr(options, "input", ()):
        for part in str(text).split("@")[1:]:
            yield Path(part.rpartition("#")[0] or part)


def _paths_of(value: Any) -> list[Path]:
    return [item for item in (value if isinstance(value, list) else [value]) if isinstance(item, Path)]
