"""``npu diff``: the difference of two saved graphs."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from npu_ir.cli.console import print_diff
from npu_ir.cli.failures import FAILED, OK
from npu_ir.cli.json_output import add_json, is_text_wanted, print_or_write_json
from npu_ir.cli.options import (
    add_drawing_output,
    add_file,
    add_overlays,
    add_page,
    integer_from,
    require_page,
)
from npu_ir.diff import diff_ir
from npu_ir.diff.report import summary_text
from npu_ir.errors import ParseError, SerializationError, UsageError
from npu_ir.graph.graph import Graph
from npu_ir.serial import load_ir
from npu_ir.serial.parser import parse_ir
from npu_ir.viz import DEFAULT_MAX_NODES, draw_diff, write_html

_EPILOG = """\
Nodes are matched by what they compute and what they are connected to, not by name alone: renaming is not a
change. Lines with - are removed, lines with + are added, and a comment after # says what changed in a node,
and which nodes were merged into it. The exit code is 1 if the graphs differ in more than names.

A and B are graphs saved as .json, or in the text form: the files of npu opt --dump-dir, the output of
npu show.

example:
  npu diff net.json fast.json
  npu diff net.json fast.json -o diff.svg
  npu diff net.json fast.json --html diff.html
  npu diff dumps/01-canonicalize.ir dumps/02-cse.ir --summary
"""


def add_to(commands: Any) -> None:
    parser = commands.add_parser(
        "diff",
        help="say what changed between two saved graphs",
        description="Say what changed between two saved graphs: nodes, arguments, results, updates.",
        epilog=_EPILOG,
    )
    add_file(parser, "a", help="the graph before")
    add_file(parser, "b", help="the graph after")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--summary", action="store_true", help="print only how much changed")
    add_json(form, "all of it")
    add_drawing_output(parser, "draw both as one picture")
    add_page(parser, "write a page with both side by side, to explore in a browser")
    add_overlays(parser)
    parser.add_argument(
        "--max-nodes",
        type=integer_from(2),
        metavar="N",
        help=f"drawing: the most boxes for nodes (default: {DEFAULT_MAX_NODES})",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print and draw the difference, and return the exit code: 1 if there is one."""
    if options.max_nodes is not None and options.output is None:
        raise UsageError("--max-nodes is for drawings", fix="add -o FILE")
    require_page(options)
    options.progress.stage("comparing the graphs")
    diff = diff_ir(_read_graph(options.a), _read_graph(options.b))
    print_or_write_json(diff.to_dict, options, "the difference")
    if is_text_wanted(options):
        print_diff(summary_text(diff) if options.summary else str(diff))
    if options.output is not None:
        options.progress.stage("drawing")
        draw_diff(diff, options.output, max_nodes=options.max_nodes or DEFAULT_MAX_NODES)
        if is_text_wanted(options):
            print(f"wrote {options.output}")
    if options.html is not None:
        options.progress.stage("writing the page")
        write_html(diff, options.html, overlays=options.overlay)
        if is_text_wanted(options):
            print(f"wrote {options.html}")
    return OK if diff.is_same else FAILED


def _read_graph(path: Path) -> Graph:
    """Return the graph in a JSON or text file.

    Raises:
        SerializationError: The file cannot be read.
    """
    if path.suffix == ".json":
        return load_ir(path)
    try:
        return parse_ir(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        problem = getattr(error, "strerror", None) or "it is not text"
        raise SerializationError(
            f"the graph cannot be read: {problem}",
            where=str(path),
            fix="name a graph saved as .json, or as text",
        ) from error
    except ParseError as error:
        raise ParseError(
            error.message, where=f"{path}, {error.where}" if error.where else str(path), fix=error.fix
        ) from error
