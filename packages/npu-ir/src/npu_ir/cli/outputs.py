"""Options for output files and folders, rejected before any work if they cannot be written."""

from __future__ import annotations

import argparse
import functools
import os
from pathlib import Path
from typing import Any

from npu_ir.cli.options import add_file
from npu_ir.errors import UsageError, VisualizationError

# Suffixes of other formats of this project: a graph in such a file would be misread.
_NON_GRAPH_SUFFIXES = (
    ".bin",
    ".dot",
    ".gv",
    ".mmd",
    ".pdf",
    ".png",
    ".pt",
    ".pth",
    ".py",
    ".safetensors",
    ".svg",
)


def add_output(parser: argparse._ActionsContainer, *names: str, help: str, **more: Any) -> None:
    """Add an option that names a file to write."""
    add_file(parser, *names, help=help, type=functools.partial(_parse_output_path, names[-1]), **more)


def add_graph_output(parser: argparse._ActionsContainer, help: str, **more: Any) -> None:
    """Add ``--output``, the file of a graph."""
    read = functools.partial(_parse_graph_path, "--output")
    add_file(parser, "-o", "--output", help=help, type=read, **more)


def add_drawing_output(parser: argparse._ActionsContainer, help: str) -> None:
    """Add ``--output``, the file of a drawing."""
    read = functools.partial(_parse_drawing_path, "--output")
    add_file(
        parser, "-o", "--output", help=f"{help}: .svg, .mmd, .dot; .png and .pdf need graphviz", type=read
    )


def add_output_folder(parser: argparse._ActionsContainer, *names: str, help: str, **more: Any) -> None:
    """Add an option that names a folder to write, which need not exist."""
    read = functools.partial(_parse_output_folder, names[-1])
    parser.add_argument(*names, type=read, metavar="FOLDER", help=help, **more)


def _parse_graph_path(option: str, text: str) -> Path:
    path = Path(text)
    if path.suffix.lower() in _NON_GRAPH_SUFFIXES:
        raise UsageError(
            f"{option} {text}: a graph is saved as JSON, not as {path.suffix}",
            fix=f"write {option} {path.with_suffix('.json')}",
        )
    return _parse_output_path(option, text)


def _parse_drawing_path(option: str, text: str) -> Path:
    from npu_ir.viz.draw import require_format

    try:
        require_format(Path(text))
    except VisualizationError as error:
        raise UsageError(f"{option} {text}: {error.message}", fix=error.fix) from error
    return _parse_output_path(option, text)


def _parse_output_path(option: str, text: str) -> Path:
    path = Path(text)
    if path.is_dir():
        raise UsageError(f"{option} {text}: this is a folder", fix=f"name a file: {path / 'NAME'}")
    if not path.parent.exists():
        raise UsageError(
            f"{option} {text}: there is no folder {path.parent}", fix=f"make it: mkdir -p {path.parent}"
        )
    _require_writable(option, text, path.parent)
    return path


def _parse_output_folder(option: str, text: str) -> Path:
    path = Path(text)
    _require_writable(option, text, next(item for item in (path, *path.absolute().parents) if item.exists()))
    return path


def _require_writable(option: str, text: str, folder: Path) -> None:
    if not folder.is_dir():
        raise UsageError(f"{option} {text}: {folder} is a file, not a folder", fix="give another place")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise UsageError(
            f"{option} {text}: {folder} may not be written to", fix="give another place, or change its mode"
        )
