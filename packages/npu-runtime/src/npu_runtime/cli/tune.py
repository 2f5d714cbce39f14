"""``npu tune``: measured costs of a saved graph on this machine, stored beside it."""

from __future__ import annotations

import argparse
from typing import Any

import torch

from npu_ir.cli import input_text
from npu_ir.cli.console import print_facts
from npu_ir.cli.options import add_threads, integer_from
from npu_ir.cli.quantities import count_text
from npu_ir.cli.weight_selection import select_weights
from npu_runtime.cli.saved_graph import HELP, add_data, add_graph, load_call

_EPILOG = f"""\
Each node is timed on each backend that states costs, and whole calls after each pipeline that one of them
names. FILE.tuning.json has the numbers of each kind of machine: CPU, threads, versions. Where they fit,
commands on FILE choose by them, with --passes auto and --backend auto; npu explain says so.

{HELP}
{input_text.HELP}
example:
  npu tune net.json --threads 1
  npu explain net.json
"""


def add_to(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "tune",
        help="measure what nodes of a saved graph cost on each backend",
        description="Measure what the nodes of a saved graph cost on each backend, on this machine.",
        epilog=_EPILOG,
    )
    add_graph(parser)
    add_threads(parser, help="threads per op (default: PyTorch's)")
    parser.add_argument(
        "--repeat", type=integer_from(1), default=20, metavar="N", help="how often to measure (default: 20)"
    )
    add_data(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Measure, store the costs, and say what was chosen."""
    from npu_runtime.backends.measured_costs import load_measured_costs, save_measured_costs, tuning_path
    from npu_runtime.diagnostics.tune import tune

    path = tuning_path(options.file)
    load_measured_costs(path, {})  # a file that is damaged is refused now, not after the measurement
    saved = load_call(options)
    torch.manual_seed(options.seed)
    options.progress.stage("reading weights")
    weights, origin = select_weights(saved.graph, options, options.seed)
    options.progress.stage("timing nodes")
    call = saved.call
    costs = tune(saved.graph, weights, call.args, call.kwargs, threads=options.threads, repeat=options.repeat)
    save_measured_costs(costs, path)
    print_facts(
        {
            str(path): f"{count_text(len(costs.seconds), 'kind')} of nodes measured",
            "fastest pipeline": costs.passes,
            "machine": f"{costs.machine['cpu']}, threads: {costs.machine['threads']}",
            "weights": origin,
            **saved.facts,
        }
    )
