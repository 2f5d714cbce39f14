"""``npu explain``: who runs each node of a saved graph, and why not another backend."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from npu_ir import Graph, load_ir
from npu_ir.cli import input_text
from npu_ir.cli.failures import FAILED, OK
from npu_ir.cli.graph_call import graph_arguments
from npu_ir.cli.options import INT_HIGH, add_file, add_inputs, add_random_data, add_sizes
from npu_ir.cli.size_text import parse_sizes, sizes_text
from npu_ir.cli.weight_choice import choose_weights
from npu_ir.errors import SerializationError, UsageError
from npu_ir.random_data import needed_weights, random_tensor, random_weights
from npu_ir.serial.load import read_document
from npu_passes import PassError, PassManager, all_pipelines, optimize

if TYPE_CHECKING:
    from npu_runtime.explaining import Explanation

_NONE = "none"
_QUANTITIES = ("flops", "count", "time")

_EPILOG = f"""\
Backends are asked in the order in which they are given; what all of them refuse, ATen runs. Nothing is run, and
no weights are needed: graphs of any size will do. With --time the graph is run, on the weights of --weights, those
that were saved with FILE, or random ones; inputs that are not given get random data.

{input_text.HELP}
example:
  npu explain net.json --backend cuda
  npu explain net.json --backend cuda --fail-under 95 --by flops
  npu explain net.json --backend cuda --time --weights net.safetensors --json explained.json
"""


def add_to(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "explain",
        help="say which backend runs each node of a saved graph, and why not another",
        description="Say for every node of a saved graph which backend runs it, and why the others do not.",
        epilog=_EPILOG,
    )
    add_file(parser, "file", help="a graph saved by npu extract or save_ir")
    parser.add_argument(
        "--backend",
        action="append",
        required=True,
        metavar="NAME",
        help="a backend to ask; several in order of preference (npu plugins lists them)",
    )
    parser.add_argument(
        "--passes",
        default="default",
        metavar="NAME,NAME{OPTION=VALUE}",
        help=f"the pipeline or passes that an executor would run first; {_NONE}: the graph as it is (default: default)",
    )
    add_file(parser, "--json", help="write all of it as JSON")
    parser.add_argument(
        "--fail-under",
        type=_percent,
        metavar="PCT",
        help="exit with 1 where the backends run less of the graph than this",
    )
    parser.add_argument("--by", choices=_QUANTITIES, help="what --fail-under counts (default: flops)")
    _add_call(parser)
    parser.set_defaults(run=run)


def _add_call(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--time", action="store_true", help="run the graph, and say how long each backend takes"
    )
    weights = parser.add_mutually_exclusive_group()
    add_file(weights, "--weights", help="for --time; any file that npu run takes")
    weights.add_argument("--random-weights", type=int, metavar="SEED", help="for --time: make up weights")
    add_inputs(parser, "an argument of the graph, for --time")
    add_sizes(parser)
    add_random_data(parser)
    parser.set_defaults(seed=None, int_high=None)  # to see whether they are given


def _percent(text: str) -> float:
    try:
        number = float(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no number") from error
    if not 0 <= number <= 100:
        raise argparse.ArgumentTypeError(f"{text!r} is no percentage from 0 to 100")
    return number


def run(options: argparse.Namespace) -> int:
    """Explain, print and save it, and return whether the backends run enough."""
    _require_sense(options)
    graph = load_ir(options.file)
    found, notes = _timed(graph, options) if options.time else (_untimed(graph, options), [])
    print("\n".join([str(found), *notes]))
    if options.json is not None:
        _write(found, options.json)
    return OK if options.fail_under is None else _judged(found, options)


def _require_sense(options: argparse.Namespace) -> None:
    """Refuse what would be ignored."""
    if options.by is not None and options.fail_under is None:
        raise UsageError("--by is for --fail-under", fix="add --fail-under PCT, or leave it out")
    if options.by == "time" and not options.time:
        raise UsageError("--by time needs times", fix="add --time")
    data = (options.weights, options.random_weights, options.seed, options.int_high)
    if not options.time and (options.input or options.size or any(item is not None for item in data)):
        raise UsageError(
            "nothing is run without --time, so no weights and no inputs are looked at",
            fix="add --time, or leave out the data",
        )


def _untimed(graph: Graph, options: argparse.Namespace) -> Explanation:
    from npu_runtime.explaining import explain_graph

    try:
        if options.passes == _NONE:
            optimized = graph
        elif options.passes in all_pipelines():
            optimized = optimize(graph, options.passes)
        else:
            optimized = PassManager(options.passes).run(graph).graph
    except PassError as error:
        raise UsageError(error.message, where=error.where, fix=error.fix) from error
    return explain_graph(optimized, options.backend)


def _timed(graph: Graph, options: argparse.Namespace) -> tuple[Explanation, list[str]]:
    """Return the explanation with times, and what it was run on."""
    from npu_runtime.executor import IRExecutor
    from npu_runtime.explaining import explain

    inputs, sizes = input_text.parse_inputs(options.input), parse_sizes(options.size)
    seed, int_high = options.seed or 0, options.int_high or INT_HIGH
    weights, origin = _weights(graph, options, seed)
    generator = torch.Generator().manual_seed(seed)
    call = graph_arguments(graph, inputs, lambda type: random_tensor(type, generator, int_high), sizes)
    passes = None if options.passes == _NONE else options.passes
    executor = IRExecutor(graph, weights, backend=options.backend, passes=passes)
    notes = ["", f"weights: {origin}"]
    if call.sizes:
        notes.append(f"sizes: {sizes_text(call.sizes, sizes)}")
    if call.invented:
        notes.append(f"random inputs, seed {seed}: {', '.join(map(repr, call.invented))}")
    return explain(executor, call.args, call.kwargs), notes


def _weights(graph: Graph, options: argparse.Namespace, seed: int) -> tuple[dict[str, torch.Tensor], str]:
    """Return weights as `npu run` chooses them, but random ones where there are none."""
    is_given = options.weights is not None or options.random_weights is not None
    saved: Any = read_document(options.file)["weights"]
    if not is_given and saved is None and any(needed_weights(graph)):
        return random_weights(graph, seed), f"random, seed {seed}"
    return choose_weights(graph, options)


def _judged(found: Explanation, options: argparse.Namespace) -> int:
    """Print whether the backends that were named run enough, and return the exit code."""
    by = options.by or "flops"
    named = list(dict.fromkeys(options.backend))
    share = 100 * sum(found.share(name, by) for name in named)
    is_enough = share >= options.fail_under
    what = {"flops": "FLOPs", "count": "nodes", "time": "time"}[by]
    verdict = "at least" if is_enough else "less than"
    print(f"\n{' and '.join(named)}: {share:.1f}% of the {what}, {verdict} {options.fail_under:g}%")
    return OK if is_enough else FAILED


def _write(found: Explanation, path: Path) -> None:
    try:
        path.write_text(json.dumps(found.to_dict(), indent=2, allow_nan=False) + "\n", encoding="utf-8")
    except OSError as error:
        raise SerializationError(
            f"the explanation cannot be written: {error.strerror or error}",
            where=str(path),
            fix="check that the folder exists and may be written to",
        ) from error
