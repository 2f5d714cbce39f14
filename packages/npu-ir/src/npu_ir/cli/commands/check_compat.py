"""``npu check-compat``: a saved graph compared with the ops of this PyTorch, and its migration."""

from __future__ import annotations

import argparse
from typing import Any

from npu_ir.cli.console import print_report
from npu_ir.cli.failures import FAILED, OK
from npu_ir.cli.json_output import add_json, is_text_wanted, print_or_write_json
from npu_ir.cli.options import add_file, add_graph_output
from npu_ir.serial import check_compatibility, migrate_ir, save_ir

_EPILOG = """\
A graph file records the schema of each op, and its calls leave out arguments at their defaults. Changes are
new, renamed and removed arguments, other defaults and types, and overloads and ops that are gone. The exit
code is 1 if a call does not mean here what it meant where the file was made.

With -o, calls are edited to mean what they did, and the exit code is 0 if that succeeds. If an op cannot be
migrated, nothing is written. Weights that were saved with the graph are not copied, and remain valid.

example:
  npu check-compat net.json
  npu check-compat net.json -o migrated.json
  npu check-compat net.json --json | jq '.ops[] | select(.changes != [])'
"""


def add_to(commands: Any) -> None:
    parser = commands.add_parser(
        "check-compat",
        help="say whether a saved graph means the same with this PyTorch",
        description="Compare the ops of a saved graph with those of this PyTorch, and migrate its calls.",
        epilog=_EPILOG,
    )
    add_file(parser, "file", help="a graph saved by npu extract or save_ir")
    add_json(parser, "the report, with every op,")
    add_graph_output(parser, "where to save the migrated graph, as JSON")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the report, write the migrated graph, and return the exit code: 1 if it is not compatible."""
    options.progress.stage("comparing the ops")
    report = check_compatibility(options.file)
    print_or_write_json(report.to_dict, options, "the report")
    if is_text_wanted(options):
        print_report([str(report)])
    if options.output is None:
        return OK if report.is_compatible else FAILED
    save_ir(migrate_ir(options.file), options.output)
    if is_text_wanted(options):
        print(f"wrote {options.output}")
    return OK
