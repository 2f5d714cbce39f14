"""``npu specialize``: specialization of a saved graph to fixed sizes."""

from __future__ import annotations

import argparse
from typing import Any

from npu_ir.cli.console import print_facts
from npu_ir.cli.facts import file_facts, files_text, graph_facts, graph_lines
from npu_ir.cli.input_text import parse_sizes
from npu_ir.cli.options import add_file, add_graph_output
from npu_ir.serial import load_ir, save_ir

_EPILOG = """\
Symbols that are not given stay open. The weights of the two graphs are the same; those that were saved with
the first one are not copied: npu run static.json --weights net.json

example:
  npu specialize net.json -o static.json batch=8 seq=128
"""


def add_to(commands: Any) -> None:
    parser = commands.add_parser(
        "specialize",
        help="fix sizes that a saved graph leaves open",
        description="Fix sizes that a saved graph leaves open, and save the graph for them.",
        epilog=_EPILOG,
    )
    add_file(parser, "file", help="a graph saved by npu extract or save_ir")
    parser.add_argument("sizes", nargs="+", metavar="SYMBOL=N", help="the value of a symbol")
    add_graph_output(parser, "where to save the graph, as JSON", required=True)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    sizes = parse_sizes(options.sizes)
    options.progress.stage("specializing")
    graph = load_ir(options.file).specialize(sizes)
    save_ir(graph, options.output)
    lines = graph_lines(graph_facts(graph))
    lines["saved"] = files_text(file_facts(options.output)["files"])
    print_facts(lines)
