"""``npu run``: execution of a saved graph."""

from __future__ import annotations

import argparse
import time
from typing import Any

import torch

from npu_ir.cli import input_text
from npu_ir.cli.call_arguments import load_call
from npu_ir.cli.console import print_facts, print_table
from npu_ir.cli.options import (
    add_backends,
    add_call,
    add_file,
    add_output,
    add_runner,
    add_weights,
)
from npu_ir.cli.quantities import count_text, value_line
from npu_ir.cli.tensor_files import require_supported_suffix, save_results
from npu_ir.cli.weight_selection import select_weights
from npu_ir.interpreter.runners import default_runner, find_runner

_EPILOG = f"""\
An input that is not given, or given by its type, gets random data; inputs of a graph go by name, too. Sizes
that the graph leaves open come from the given inputs, from --size, or are the smallest that it allows, at
least 2.

{input_text.HELP}
example:
  npu run net.json --weights net.safetensors --input x=@image.npy -o result.safetensors
  npu run net.json --random-weights 0 --size batch=4
"""

_TOP_UPDATES = 12


def add_to(commands: Any) -> None:
    parser = commands.add_parser(
        "run",
        help="run a saved graph",
        description="Run a saved graph and say what it returns.",
        epilog=_EPILOG,
    )
    add_file(parser, "file", help="a graph saved by npu extract or save_ir")
    add_weights(
        parser,
        ".safetensors, .pt, .pth or .bin, a sharded index, or a folder (default: those saved with the graph)",
    )
    add_call(parser, "an argument of the graph")
    add_runner(parser)
    add_backends(
        parser, "who runs what it can, for the executor; several in order of preference (default: aten)"
    )
    add_output(parser, "-o", "--output", help="save the results by path: .safetensors or .pt")
    parser.add_argument(
        "--all-updates", action="store_true", help=f"print every update, not only the first {_TOP_UPDATES}"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    if options.output is not None:
        require_supported_suffix(options.output)
    runner_name = default_runner() if options.on is None else options.on
    make_runner = find_runner(runner_name, options.backend)
    graph, call = load_call(options)
    options.progress.stage("reading weights")
    weights, origin = select_weights(graph, options)
    options.progress.stage("preparing")
    runner = make_runner(graph, weights, None)
    torch.manual_seed(options.seed)
    options.progress.stage("running")
    start = time.perf_counter()
    leaves, mutations = runner.run_flat(call.args, call.kwargs)
    seconds = time.perf_counter() - start

    # By path, and the new contents of mutated buffers and inputs by name.
    results = dict(zip(graph.results[0].leaf_paths("result"), leaves, strict=True))
    results.update((f"updated {name}", tensor) for name, tensor in mutations.items())
    hidden = 0 if options.all_updates else max(len(mutations) - _TOP_UPDATES, 0)
    shown = list(results.items())[: len(results) - hidden]
    print_table(("result", "value"), [(path, value_line(value)) for path, value in shown])
    if hidden:
        print(f"... and {count_text(hidden, 'more update')}: --all-updates prints them")
    backends = f" on {', '.join(options.backend)}" if options.backend else ""
    lines = {
        "run by": f"{runner_name}{backends}",
        "weights": origin,
        "time": f"{seconds:.3f} s for {len(graph):,} nodes",
        **call.facts(options),
    }
    if options.output is not None:
        left_out = save_results(results, options.output)
        lines["saved"] = f"{options.output}" + (
            f", without {', '.join(left_out)}: not tensors" if left_out else ""
        )
    print()
    print_facts(lines)
