"""``npu compile``: an executor of a saved graph as a file, which another process loads at once."""

from __future__ import annotations

import argparse
import time
from typing import Any

from npu_ir import load_ir
from npu_ir.cli.console import print_facts
from npu_ir.cli.options import add_backends, add_executor_output, add_threads, add_weights
from npu_ir.cli.quantities import count_text, size_text, time_text
from npu_ir.cli.weight_selection import select_weights
from npu_runtime.cli.saved_graph import BACKENDS_HELP, add_graph, add_passes, make_executor

_EPILOG = """\
The file has the optimized graph, the backend of each node, and the weights as the prologue left them: folded,
transformed, packed. It is for this kind of CPU and these versions; IRExecutor.load says so where it is not.
Weights are those of --weights, or those that were saved with FILE.

example:
  npu compile net.json -o net.npu
  python -c "from npu_runtime import IRExecutor; executor = IRExecutor.load('net.npu')"
"""


def add_to(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "compile",
        help="write an executor of a saved graph, with its weights, to a file",
        description="Run passes over a saved graph, choose backends, prepare weights, and write the result.",
        epilog=_EPILOG,
    )
    add_graph(parser)
    add_executor_output(parser, "the file of the executor")
    add_passes(parser)
    add_backends(parser, BACKENDS_HELP)
    add_threads(parser, help="threads of its calls (default: PyTorch's)")
    add_weights(parser, "any file that npu run takes")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Make the executor, save it, and say what is in the file."""
    options.progress.stage("reading the graph")
    graph = load_ir(options.file)
    options.progress.stage("reading weights")
    weights, origin = select_weights(graph, options)
    options.progress.stage("preparing the executor")
    start = time.perf_counter()
    executor = make_executor(graph, weights, options, updates=None, threads=options.threads)
    seconds = time.perf_counter() - start
    options.progress.stage("writing the file")
    executor.save(options.output)
    shares = {item.partition.backend.name: 0 for item in executor.lowered.partitions}
    for item in executor.lowered.partitions:
        shares[item.partition.backend.name] += len(item.partition.nodes)
    print_facts(
        {
            str(options.output): size_text(options.output.stat().st_size),
            "nodes": ", ".join(f"{count_text(count, 'node')} on {name}" for name, count in shares.items()),
            "compiled": f"in {time_text(seconds)}",
            "weights": origin,
        }
    )
