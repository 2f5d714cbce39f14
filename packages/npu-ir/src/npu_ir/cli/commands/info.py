"""``npu info``: facts about a saved graph."""

from __future__ import annotations

import argparse
from typing import Any

from npu_ir.cli.console import print_facts
from npu_ir.cli.facts import file_facts, files_text, graph_facts, graph_lines, ops_text, unknown_ops_text
from npu_ir.cli.json_output import add_json, is_text_wanted, print_or_write_json
from npu_ir.cli.options import add_file
from npu_ir.serial import load_ir

_EPILOG = """\
example:
  npu info net.json
  npu info net.json --json | jq .ops
"""


def add_to(commands: Any) -> None:
    parser = commands.add_parser(
        "info",
        help="say what is in a saved graph",
        description="Say what is in a saved graph: types, sizes, ops.",
        epilog=_EPILOG,
    )
    add_file(parser, "file", help="a graph saved by npu extract or save_ir")
    add_json(parser, "all of it, with every op,")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    options.progress.stage("reading the graph")
    graph = graph_facts(load_ir(options.file))
    file = file_facts(options.file)
    print_or_write_json(lambda: {**graph, **file}, options, "the facts")
    if not is_text_wanted(options):
        return
    made_with = f"PyTorch {file['torch']}, format {file['format']}"
    print_facts(
        {
            **graph_lines(graph),
            "ops": ops_text(graph["ops"]),
            **({"unknown": unknown_ops_text(graph["unknown_ops"])} if graph["unknown_ops"] else {}),
            "files": files_text(file["files"]),
            "made with": made_with,
        }
    )
