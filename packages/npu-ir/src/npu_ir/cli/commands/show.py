"""``npu show``: a saved graph as text, as a drawing or as a page."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from npu_ir.cli.options import (
    add_drawing_output,
    add_file,
    add_overlays,
    add_page,
    integer_from,
    require_page,
)
from npu_ir.errors import UsageError
from npu_ir.serial import load_ir
from npu_ir.text.printer import format_ir
from npu_ir.viz import DEFAULT_MAX_NODES, draw, to_dot, to_mermaid, write_html

_DRAWING_OPTIONS = ("depth", "max_nodes", "weights")
_EPILOG = """\
The text holds the whole graph, and parse_ir reads it. A drawing groups the nodes of a large graph by
module, so that it stays readable: --depth and --max-nodes say how far. A page has all of it, in modules that
open on a click, with search and details; --overlay colours it by what another command measured.

example:
  npu show net.json --provenance | less
  npu show net.json -o net.svg --depth 2
  npu show net.json --html net.html
  npu profile net.json --passes none --json time.json && npu show net.json --html net.html --overlay time.json
"""


def add_to(commands: Any) -> None:
    parser = commands.add_parser(
        "show",
        help="print or draw a saved graph",
        description="Print a saved graph, as text if nothing else is said, draw it, or write a page of it.",
        epilog=_EPILOG,
    )
    add_file(parser, "file", help="a graph saved by npu extract or save_ir")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--text", action="store_true", help="print the text form (the default)")
    form.add_argument("--mermaid", action="store_true", help="print a mermaid flowchart, for Markdown pages")
    form.add_argument("--dot", action="store_true", help="print it in the language of graphviz")
    add_drawing_output(form, "draw it")
    add_page(form, "write a page to explore it in a browser")
    add_overlays(parser)
    parser.add_argument("--provenance", action="store_true", help="text: module and source line of each node")
    parser.add_argument("--depth", type=int, metavar="N", help="drawing: open modules to this depth")
    parser.add_argument(
        "--max-nodes",
        type=integer_from(2),
        metavar="N",
        help=f"drawing: the most boxes for nodes (default: {DEFAULT_MAX_NODES})",
    )
    parser.add_argument(
        "--weights",
        action="store_true",
        default=None,
        help="drawing: boxes for parameters, buffers, optimizer state and constants",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    drawing = {
        name: getattr(options, name) for name in _DRAWING_OPTIONS if getattr(options, name) is not None
    }
    is_drawing = options.mermaid or options.dot or options.output is not None
    _require_consistent(options, drawing, is_drawing=is_drawing)
    require_page(options)
    options.progress.stage("reading the graph")
    graph = load_ir(options.file)
    if options.html is not None:
        options.progress.stage("writing the page")
        print(f"wrote {write_html(graph, options.html, overlays=options.overlay)}")
    elif options.output is not None:
        options.progress.stage("drawing")
        print(f"wrote {draw(graph, options.output, **drawing)}")
    elif is_drawing:
        sys.stdout.write((to_mermaid if options.mermaid else to_dot)(graph, **drawing))
    else:
        sys.stdout.write(format_ir(graph, provenance=options.provenance))


def _require_consistent(options: argparse.Namespace, drawing: dict[str, Any], *, is_drawing: bool) -> None:
    if drawing and not is_drawing:
        option = "--" + next(iter(drawing)).replace("_", "-")
        raise UsageError(f"{option} is for drawings", fix="add --mermaid, --dot or -o FILE")
    if options.provenance and (is_drawing or options.html is not None):
        raise UsageError("--provenance is for the text form", fix="leave it out, or leave out the drawing")
