"""``npu profile``: the time of a call by node, op or module."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import torch

from npu_ir.cli import input_text
from npu_ir.cli.console import print_facts, print_table
from npu_ir.cli.json_output import (
    add_json,
    is_text_wanted,
    print_or_write_json,
    write_json,
    write_text,
)
from npu_ir.cli.options import add_output, integer_from
from npu_ir.cli.quantities import count_text
from npu_ir.errors import UsageError
from npu_runtime.cli.saved_graph import HELP, add_timed_graph, load_executor

_LIMIT = 20
_EPILOG = f"""\
The program of the executor is timed step by step, alternating with calls without clocks. A step may compute
several nodes, shown as (+2). Nodes that only prepare weights run once, when weights are bound, and are left
out.

{HELP}
{input_text.HELP}
example:
  npu profile net.json
  npu profile net.json --passes cpu --by module --threads 1
  npu profile net.json --trace net.trace.json     (open it in ui.perfetto.dev)
"""


def add_to(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "profile",
        help="time a saved graph node by node",
        description="Run a saved graph with the executor, and say which nodes take how long.",
        epilog=_EPILOG,
    )
    add_timed_graph(parser)
    parser.add_argument(
        "--by",
        choices=("node", "op", "module", "phase"),
        default="node",
        help="what a row is (default: node)",
    )
    parser.add_argument(
        "--limit",
        type=integer_from(0),
        default=_LIMIT,
        metavar="N",
        help=f"the most rows; 0 for all (default: {_LIMIT})",
    )
    add_json(parser, "all of it")
    add_output(parser, "--trace", help="write a run as a Chrome trace")
    add_output(
        parser, "--roofline", help="draw the speed of each step beside the limits of this machine: .svg"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Profile the graph, print a table, and save the profile."""
    from npu_runtime.diagnostics.profile import measure_limits, profile, to_roofline
    from npu_runtime.executor.engine import thread_count

    if options.roofline is not None and options.roofline.suffix != ".svg":
        raise UsageError(f"--roofline {options.roofline}: a roofline is an SVG", fix="end its name in .svg")
    saved, executor, facts = load_executor(options)
    torch.manual_seed(options.seed)
    options.progress.stage("timing steps")
    with thread_count(options.threads):
        measured = profile(executor, saved.call.args, saved.call.kwargs, repeat=options.repeat)
        if options.roofline is not None:
            facts["limits"] = str(limits := measure_limits(executor.device))
            write_text(to_roofline(measured, limits), options.roofline, "the roofline")
    print_or_write_json(measured.to_dict, options, "the profile")
    if options.trace is not None:
        write_json(measured.to_chrome_trace(), options.trace, "the trace")
    if is_text_wanted(options):
        _print_rows(*measured.rows(options.by), options.limit)
        print_facts({**measured.facts(), **facts})


def _print_rows(columns: Sequence[str], rows: Sequence[Sequence[str]], limit: int) -> None:
    """Print the first rows, and how many there are besides."""
    shown = rows[: limit or None]
    print_table(columns, shown)
    if len(shown) < len(rows):
        print(f"... {count_text(len(rows) - len(shown), 'row')} more (--limit 0)")
    print()
